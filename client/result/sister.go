package result

// Chat is what the cell of a chat run has beyond others. There OK is all messages, sent and received, QPS their rate, and
// LatencyUS that of deliveries.
//
//	with R rooms of U users who send C messages each
//	sent = R*U*C, received = R*U*C*(U-1), total = R*U*U*C
type Chat struct {
	Rooms    int     `json:"rooms"`
	Users    int     `json:"users"` // of each room
	Sent     int64   `json:"sent"`
	Received int64   `json:"received"` // by users other than the sender
	Own      int64   `json:"own"`      // copies that came back to their sender: read, and not counted
	TurnUS   Latency `json:"turn_us"`  // turns: from a message of a room to its next one; flood: until the sender has its own copy
}

// Conns is what the cell of a conns run has beyond others. There OK is the messages that the server counted within the
// window, QPS their rate, and LatencyUS that of connecting.
type Conns struct {
	Connections   int      `json:"connections"`
	MessageBytes  int      `json:"message_bytes"`
	Offered       *float64 `json:"offered"` // messages a second that were to be sent; null: as fast as possible
	Sent          *float64 `json:"sent"`    // messages a second that were sent
	Received      *float64 `json:"received"`
	ReceivedShare *float64 `json:"received_share"`  // received / offered, or / sent at saturation
	ServerCPU     *float64 `json:"server_cpu"`      // processors that the server kept busy
	RSSPerConnB   *float64 `json:"rss_per_conn"`    // bytes by which one idle connection of the second half made the server grow; null: within the noise
	WaitingBefore *float64 `json:"waiting_before"`  // messages sent and not yet received when the window began
	WaitingAfter  *float64 `json:"waiting_after"`   // and when it ended
	ConnectPerSec *float64 `json:"connect_per_sec"` // connections a second while they were opened
	Clients       int      `json:"clients"`         // processes that sent
}
