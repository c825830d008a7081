// Package kvmark holds no code: it is the map of the house, for those who come to change something. README.md says what kvmark is
// for, CONTRIBUTING.md how a change is checked.
//
// # Rooms
//
//	cmd/kvmark, cmd/kvserver   the two programs: main and one file per subcommand
//	kvserver                   the server: connections, commands, the data directory, recovery, check and repair
//	kvserver/resp              Redis's protocol, RESP2 and RESP3: parser and replies; the only part of the server that the client imports
//	kvserver/stats             what the server counts: histograms, GC, scheduler
//	wal                        the log: segments, group commit, recovery; wal/entry is what a record holds
//	storage                    the interface Store, and Open by mode; one package per mode below it
//	client                     a connection to a server that speaks RESP
//	client/workload            keys, values and their distributions
//	client/load                one measured window: child servers, workers, pacing, checks
//	client/result              the result file: plan, environment, cells; and what each warning means
//	client/compare             statistics: estimates, verdicts, noise floor, limits; knows numbers only
//	client/experiment          a comparison: builds servers, runs rounds, keeps the journal
//	client/report              tables, pages, bench format
//	client/chat, client/conns  the two sister benchmarks
//	cmd/internal               tools and tests of the project: lint, scripts, profile, versus, openloop, restart
//	testdata                   end-to-end scripts, recorded results
//
// Imports point down; cmd/internal/lint/testdata/edges.txt lists every one of them. The log and the stores do not know each other.
//
// # The way of a SET
//
// The event loop (kvserver/io_loop_linux.go; io_goroutine.go elsewhere) reads bytes of a connection, kvserver/resp finds the command
// in them, and the session looks it up in the command table (command.go). The command (strings.go) takes the lock of its key's shard
// in db.go; under it the record is appended to the log (wal.Log.Append) and the value is put into the store (storage.Store.Set), so
// that the log's order is the store's order. The reply is written when the record has reached the level that the policy names
// (wal.Log.Commit, one for all that were read together).
//
// # The way of a measurement
//
// cmd/kvmark/run.go makes a load.Config of the flags. client/load starts a fresh kvserver on an empty directory, connects the workers,
// warms up, measures Set, fills the rest, measures Get, reads INFO before and after, stops the server, and judges: the books must
// balance. The Outcome is a result.File, which client/report prints. cmd/kvmark/compare.go makes an experiment of it: client/experiment
// builds one server per setting and repeats windows in an order that cancels drift, client/compare turns the samples into verdicts.
//
// # Where to add
//
//	a storage mode      a package below storage that implements storage.Store, its name in storage/mode, its case in storage.Open;
//	                    storage/storagetest checks it
//	an option           of the client: its flag in cmd/kvmark, its field in load.Config and result.Plan (so that replay knows it);
//	                    of the server: cmd/kvserver/serve.go and kvserver.Options
//	a command           its line in the table of kvserver/command.go and its function in the file of its family
//	a metric            client/compare/metric.go, and where it is read (client/load, from INFO or the client's own counters)
//	a protocol          a parser beside kvserver/resp, and its session beside kvserver/session.go
//	a warning           its code and text in client/result/explain.go
//	a dependency        go.mod, with the reason in the commit
package kvmark
