// Package descriptors says how many file descriptors there are, and how many of them a store may take, so that clients and
// stores do not take each other's. It is for the modes that keep files open, and for the server.
package descriptors

// most is how many files a store keeps open where there are descriptors enough.
const most = 512

// spare is what a store has open besides: files that are being written, manifests, directories that are being synced.
const spare = 20

// Files returns how many files a store may keep open for reading: an eighth of what the process may have, 512 at most.
func Files() int {
	limit, ok := Limit()
	if !ok {
		return most
	}
	return int(min(most, max(4, limit/8)))
}

// Store returns how many descriptors a store with Files takes in all.
func Store() int64 { return int64(Files()) + spare }
