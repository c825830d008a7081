//go:build !linux

package load

import "time"

// pause waits for d, as exactly as the runtime's timers do.
func pause(d time.Duration) { time.Sleep(d) }
