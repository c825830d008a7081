package kvserver

import (
	"fmt"

	"kvmark/storage"
	"kvmark/storage/descriptors"
)

// What the server needs of file descriptors besides one for each connection. Go has raised the soft limit to the hard one.
const (
	// ownDescriptors are the standard streams, the listener, the lock, the log (two handles of a segment, and the next one),
	// a checkpoint, a profile, a directory to be synced, and some that the runtime has.
	ownDescriptors = 24
	// loopDescriptors are a loop's epoll and its bell, and for a moment the second one of a new connection.
	loopDescriptors = 3
)

// needDescriptors returns how many descriptors the server keeps from its clients.
func needDescriptors(o *Options) int64 {
	need := int64(ownDescriptors)
	if o.IO == Loop {
		need += loopDescriptors * int64(loopCount(o.Loops))
	}
	if o.Mode == storage.File || o.Mode == storage.LSM {
		need += descriptors.Store()
	}
	return need
}

// mostClients returns how many connections the limit of the process leaves room for; ok = false where there is no limit.
func (srv *Server) mostClients() (most int64, ok bool) {
	limit, ok := descriptors.Limit()
	return limit - needDescriptors(&srv.opts), ok
}

// fitClients lowers the number of connections to what there are descriptors for.
func (srv *Server) fitClients() error {
	most, ok := srv.mostClients()
	want := srv.settings.maxClients.Load()
	if !ok || want <= most {
		return nil
	}
	limit, _ := descriptors.Limit()
	if most < 1 {
		return fmt.Errorf("kvserver: the process may have %d open files, and needs %d without any client; raise the limit (ulimit -n)", limit, limit-most+1)
	}
	srv.opts.Logf("kvserver: the process may have %d open files, %d of which the server needs itself: at most %d clients instead of %d; raise the limit (ulimit -n) to %d for all of them",
		limit, limit-most, most, want, want+limit-most)
	srv.settings.maxClients.Store(most)
	return nil
}
