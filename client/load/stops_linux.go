package load

import (
	"bytes"
	"os"
	"strconv"
)

// processStopped reports whether a process is stopped by a signal, if the system tells.
//
//	/proc/PID/stat: 4711 (name) T ...
func processStopped(pid int) (stopped, known bool) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	at := bytes.LastIndexByte(b, ')') + 2 // the name may hold any bytes
	if err != nil || at < 2 || at >= len(b) {
		return false, false
	}
	return b[at] == 'T' || b[at] == 't', true
}
