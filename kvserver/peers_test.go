package kvserver

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"kvmark/storage"
	"kvmark/wal"
)

// peer is a way in which stores of this kind are known to go wrong, what is right, and which tests of this module would see it.
// Sources are issues (#) and pull requests of the projects named.
type peer struct {
	sources string
	symptom string
	right   string
	tests   string // package directory, a dot, and the function; several are separated by spaces
}

func peers() []peer {
	return []peer{
		// Ends that are torn, damage, and starts after a crash.
		{"etcd#5230", "a record is torn where a page ends, and the store does not start", "the torn end is known for one and cut", "wal.TestATailTornAtAnyByteIsCut wal.TestPowerLoss"},
		{"etcd#6515", "zeros behind a torn record pass for damage", "zeros belong to the torn end", "wal.TestTraps wal.TestSegmentHeaders"},
		{"etcd#14098", "pages that never got to the disk turn into an absurd length", "a length is compared with the rest of the file first", "wal.TestTraps wal.FuzzSegment"},
		{"etcd#2736 etcd#3065 etcd#4903 etcd#6191 etcd#11220", "a checksum is wrong in the middle, and the operator does not get on", "no start; file, offset and what is readable behind it are named, and repair is there", "wal.TestEveryFlippedBitIsFound wal.TestScanGoesOnBehindDamage kvserver.TestRepairMakesADamagedDirectoryUsable cmd/kvserver.TestRepair"},
		{"pebble#864 pebble#871 unistore#567", "an older log is damaged, the newer one is replayed over the gap", "a gap ends the replay with an error", "wal.TestTraps wal.TestFirstSegmentMustExist kvserver.TestEveryDamageIsHarmlessOrReported"},
		{"badger#154", "a length that is rubbish takes all memory", "memory is bounded by what a record may be and what the file has", "wal.TestTraps wal.FuzzSegment kvserver.FuzzReadCheckpoint wal.TestTheSearchBehindDamageGivesUpOnCraftedHeads"},
		{"badger#1049", "a damaged value is served", "whoever reads it gets an error", "storage/file.TestEveryBitFlipIsFoundOrHarmless storage/serialize.TestEveryBitFlipIsFound kvserver.TestEveryDamageIsHarmlessOrReported"},
		{"badger#478 badger#613 badger#616 badger#1023 badger#1130 badger#1353", "a start after a kill asks for a flag", "it just starts", "kvserver.TestKillingTheServerLosesNothingAcknowledged wal.TestKill"},
		{"nutsdb#569", "a power cut ends in a checksum error", "the torn end is cut", "kvserver.TestPowerCuts kvserver.TestAPowerFailureLosesNothingAcknowledged wal.TestPowerLoss"},
		{"nutsdb#213 bitcask#136 prometheus#3283", "an empty newest file, or one with nothing but its header, stops the start", "it is what a crash leaves, and is used", "wal.TestSegmentHeaders wal.TestRestartsWithoutRecordsLeaveOneSegment"},
		{"amelie#17 cqlite#1390 acoustid-index#157", "what is written behind a torn end is lost by the next start", "crash, start, write, crash, start: it is there", "wal.TestInterruptedRecovery wal.TestModel kvserver.TestPowerCuts"},
		{"amelie#58 samyama-graph#1335 VelesDB#1011", "a cut in the head of the last record is tolerated, one in its body is not", "a cut at any byte is", "wal.TestATailTornAtAnyByteIsCut"},
		{"prometheus#13152", "repair removes good newer segments", "repair removes nothing", "kvserver.TestRepairMakesADamagedDirectoryUsable wal.TestRewrite"},
		{"prometheus#6080", "what an interrupted repair leaves stops every start", "repair and start can be interrupted anywhere", "kvserver.TestRepairCanBeInterruptedAnywhere wal.TestInterruptedRecovery"},
		{"prometheus#18552", "a start accepts what every checkpoint after it refuses", "what a start accepts, the next checkpoint does", "kvserver.TestEveryDamageIsHarmlessOrReported kvserver.TestEveryFaultIsSurvived"},
		{"raft-wal#10", "a half-written record counts", "the last record's checksum counts at the start", "wal.TestATailTornAtAnyByteIsCut wal.TestPowerLossInFilledSegments"},
		{"logcabin#191 logcabin#221", "a segment of zeros, made ahead, does not open", "zeros are its end", "wal.TestSegmentHeaders wal.TestPowerLossInFilledSegments"},
		{"SmartBFT#101 raft#277", "repair overwrites the evidence", "the damaged file is kept under another name", "wal.TestRewrite cmd/kvserver.TestRepair kvserver.TestRepairWritesFORMATAnew"},
		{"bbolt#335 bbolt#562 bbolt#778 bbolt#883 bolt#348", "page errors, and nothing tells how bad it is", "check reads everything and has exit codes", "cmd/kvserver.TestServeCheckAndDump cmd/kvserver.TestMistakesAreOneLineWithAHint kvserver.TestEveryDamageIsHarmlessOrReported"},
		{"weaviate#4038 TDengine#19431 TDengine#28621", "no start after being killed for memory", "a start works after any kill, in bounded memory", "kvserver.TestKillingTheServerLosesNothingAcknowledged kvserver.TestACheckpointThatFailsAtAnyStepLosesNothing"},

		// Full disks, short writes, syncs that fail.
		{"prometheus#7835", "writing goes on in the segment in which a write failed", "the first error is final, and the next start begins a new segment", "wal.TestShortWritesAreFinal kvserver.TestAFullDisk"},
		{"prometheus#7245", "a start after a full disk removes nearly everything", "nothing is removed because of an error", "kvserver.TestAFullDisk kvserver.TestAStartOnAFullDisk"},
		{"badger#1008 badger#1801", "a full disk kills the process", "it is an error of the write", "kvserver.TestAFullDisk kvserver.TestEveryWriteLeavesMinFree"},
		{"raft-wal#32", "after a failed append memory is ahead of the file", "what did not get into the log is not read", "kvserver.TestAfterALogErrorWritesAreRefusedAndReadsGoOn wal.TestUnwritten"},
		{"badger#579", "an error of the disk ends in a hang, or is lost", "every error is somebody's reply", "kvserver.TestEveryFaultIsSurvived wal.TestEveryOperationFailsOnce storage/file.TestEveryFailure storage/lsm.TestEveryFailure"},
		{"buntdb#122", "after a failed sync writes count as durable", "nothing is acknowledged any more", "wal.TestAFailedSyncUnderAlwaysAcknowledgesNothing wal.TestAFailedBackgroundSyncEndsTheLog"},
		{"pebble#984 pebble#1159 pebble#1164", "what happens after an error of the log is not defined", "reads go on, writes are refused, INFO tells", "kvserver.TestAfterALogErrorWritesAreRefusedAndReadsGoOn kvserver.TestAfterAManifestErrorTheServerOnlyReads"},
		{"redis#587 redis#4066 redis#4281 redis#14372", "a short write, or one beyond what the system takes, corrupts the log", "a short write is an error, and a record is bounded", "wal.TestShortWritesAreFinal wal.TestARecordAboveTheLimitIsRefusedAndChangesNothing"},
		{"etcd#6368 etcd#6378 etcd#6379 etcd#10688 etcd#20218 etcd#22340", "a directory that is not synced, or half made, or a mount point", "it is synced, finished, and accepted", "kvserver.TestPowerCuts kvserver.TestADirectoryThatIsHalfMadeIsFinished kvserver.TestAFullDisk"},
		{"cockroach#117383", "a new directory is gone after a power cut", "its parent is synced", "kvserver.TestPowerCuts"},
		{"pebble#1165 pebble#4430", "there is no level between the process's memory and the device", "each level has a name, and keeps what it promises", "wal.TestPolicyNames wal.TestKill kvserver.TestKillingTheServerLosesNothingAcknowledged"},

		// Opening twice.
		{"badger#424 badger#433 badger#876 badger#1564", "the lock file of a process that has died stops the start", "the kernel holds the lock, the file means nothing", "kvserver.TestALockFileMeansNothingWithoutItsHolder"},
		{"bolt#562 xk6-kv#24 treefmt#408", "opening what is in use waits for ever", "it is refused at once, and by whom it is used is said", "kvserver.TestADirectoryInUseIsRefusedWithItsServer storage/lsm.TestOpeningTwiceIsRefused"},
		{"bitcask#187 bitcask#257", "the number of the process in the lock is somebody else's by now", "it is not looked at", "kvserver.TestALockFileMeansNothingWithoutItsHolder"},

		// Descriptors, goroutines, races.
		{"goleveldb#41 goleveldb#67 goleveldb#265 bitcask#61 bitcask#113 bitcask#249", "no descriptors are left, and damage follows", "that is an error of the operation, and no more", "kvserver.TestWithoutFileDescriptorsAReadFailsAndRecovers kvserver.TestWithoutFileDescriptorsConnectionsWait storage/file.TestTooManyOpenFilesIsAnErrorAndNoMore cmd/kvserver.TestFewFileDescriptors"},
		{"nutsdb#158 nutsdb#166 nutsdb#586", "files and goroutines stay after closing", "none does", "kvserver.TestShutdownClosesEveryFile kvserver.TestMain wal.TestMain storage/file.TestMain storage/lsm.TestMain"},
		{"badger#215 badger#243 badger#571 badger#1187 rosedb#233 rosedb#234", "writing, closing and merging race", "the race detector finds nothing in any mode", "kvserver.TestManyClientsSeeTheirOwnWrites kvserver.TestMGETSeesAllOrNothingOfAnMSET storage/file.TestConformance wal.TestWritersGoOnBesideABackgroundSync"},
		{"seriesly#40", "open files grow with the data", "there is a bound", "storage/descriptors.TestAStoreLeavesMostOfTheDescriptors cmd/kvserver.TestFewFileDescriptors"},

		// Merging and reclaiming.
		{"rosedb#242 rosedb#258", "a merge brings back what was deleted, a second one breaks the start", "a crash at any step changes nothing that was acknowledged", "storage/file.TestCrash kvserver.TestACheckpointThatFailsAtAnyStepLosesNothing kvserver.TestPowerCuts"},
		{"nutsdb#77 nutsdb#392 nutsdb#491", "a merge overwrites newer values", "the copy counts only if the entry still is where it was", "storage/file.TestConformance storage/file.TestReclaimingGivesSpaceBack"},
		{"bbolt#204 bbolt#288", "the file never shrinks", "dead space is given back, and INFO tells of it", "storage/file.TestReclaimingGivesSpaceBack kvserver.TestInfoNamesEveryField"},

		// Keys and values at their edges.
		{"badger#992", "a key of one zero byte hides others", "any bytes are a key", "storage/memory.TestConformance storage/serialize.TestConformance storage/file.TestConformance storage/lsm.TestConformance"},
		{"badger#1139 badger#1211 hmap#31", "an empty value breaks collecting, or is no value", "it is one", "kvserver.TestLimits storage/file.TestConformance storage/lsm.TestConformance"},
		{"kvrocks#1267 redis-lua#24", "an empty key is refused or lost", "it is one like others", "kvserver.TestLimits kvserver.TestRepliesAreThoseOfRedis"},
		{"badger#212 badger#227", "there is a limit, and nobody says which", "the error names it", "kvserver.TestLimits wal.TestARecordAboveTheLimitIsRefusedAndChangesNothing"},
		{"redis#3726", "the limit of an argument is held against the whole buffer", "it is for each argument", "kvserver.TestLimits kvserver.TestBigValuesAndDeepPipelines"},
		{"beats#50288 radish#3 go-redis#3856 gedis#9", "a negative length panics, a huge count takes the memory for it at once, a long command is cut", "an error of the protocol, and nothing is held for a promise", "kvserver/resp.TestProtocolErrorsAreTyped kvserver/resp.TestParserHoldsNothingForADeclaredLength kvserver/resp.FuzzParser kvserver.FuzzSession"},
		{"avalanchego#1300 compress#726", "a small input unpacks to everything there is, or to something else", "the stored length bounds it, and what does not fit is damage", "storage/serialize.FuzzDecodeBucket storage/serialize/codec.FuzzDecode storage/serialize.TestADamagedBucketIsNamed"},

		// How fast a start is.
		{"prometheus#6934", "a replay takes all memory, and every try leaves one more segment", "memory is bounded, and a start that fails leaves nothing", "kvserver.TestStartsThatFailLeaveNothing wal.TestReplayStopsAtTheCallersError"},
		{"prometheus#12282 prometheus#13617 prometheus#16942 rosedb#13", "a replay takes minutes", "a checkpoint bounds what there is to replay", "kvserver.TestTheLogStaysShort kvserver.TestARestartBringsBackTheState"},
	}
}

func TestEveryKnownFailureOfPeersHasItsTests(t *testing.T) {
	there := map[string]bool{}
	root := ".."
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil {
				there[filepath.ToSlash(dir)+"."+f.Name.Name] = true
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(peers()) < 45 {
		t.Errorf("only %d", len(peers()))
	}
	seen := map[string]bool{}
	for _, p := range peers() {
		if p.sources == "" || p.symptom == "" || p.right == "" || p.tests == "" {
			t.Errorf("a part is missing: %+v", p)
		}
		for _, source := range strings.Fields(p.sources) {
			if _, number, ok := strings.Cut(source, "#"); !ok || seen[source] {
				t.Errorf("%s is no number of an issue, or there twice", source)
			} else if _, err := strconv.Atoi(number); err != nil {
				t.Errorf("%s: %v", source, err)
			}
			seen[source] = true
		}
		for _, name := range strings.Fields(p.tests) {
			if !there[name] {
				t.Errorf("%s: there is no %s", p.symptom, name)
			}
		}
	}
}

// Files named LOCK and PID are what a server leaves that was killed, or one whose number another process has by now.
func TestALockFileMeansNothingWithoutItsHolder(t *testing.T) {
	dir := t.TempDir()
	srv := open(t, Options{FS: vfs.Default, Dir: dir})
	speak(t, srv).want("SET k v", ok)
	shutdown(t, srv)
	for name, text := range map[string]string{lockName: "1\n", pidName: strconv.Itoa(os.Getppid()) + "\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	speak(t, open(t, Options{FS: vfs.Default, Dir: dir})).want("GET k", "$1\r\nv\r\n")
}

// handles counts the files and directories that are open.
type handles struct {
	vfs.FS
	open atomic.Int64
}

func (h *handles) file(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	h.open.Add(1)
	return &handleOf{File: f, all: h}, nil
}

func (h *handles) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	return h.file(h.FS.Create(name, category))
}

func (h *handles) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := h.FS.Open(name)
	f, err = h.file(f, err)
	if err == nil {
		for _, o := range opts {
			o.Apply(f)
		}
	}
	return f, err
}

func (h *handles) OpenReadWrite(name string, category vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	return h.file(h.FS.OpenReadWrite(name, category, opts...))
}

func (h *handles) OpenDir(name string) (vfs.File, error) { return h.file(h.FS.OpenDir(name)) }

type handleOf struct {
	vfs.File
	all    *handles
	closed atomic.Bool
}

func (f *handleOf) Close() error {
	if !f.closed.Swap(true) {
		f.all.open.Add(-1)
	}
	return f.File.Close()
}

func TestShutdownClosesEveryFile(t *testing.T) {
	for _, mode := range storage.Modes() {
		t.Run(string(mode), func(t *testing.T) {
			h := &handles{FS: vfs.NewMem()}
			for range 2 {
				srv := open(t, Options{FS: h, Mode: mode, WALPolicy: wal.Interval, SegmentBytes: 10_000})
				c := speak(t, srv)
				for i := range 300 {
					c.do("SET k" + strconv.Itoa(i) + " " + strings.Repeat("v", 1000))
					if i%100 == 99 {
						if err := srv.Checkpoint(); err != nil {
							t.Fatal(err)
						}
						c.do("GET k1")
					}
				}
				if h.open.Load() < 1 {
					t.Fatal("no file is open")
				}
				shutdown(t, srv)
				if n := h.open.Load(); n != 0 {
					t.Fatalf("%d files are still open", n)
				}
			}
			// A start that fails closes what it has opened, too, wherever it fails.
			for n := int32(0); n < 100; n++ {
				f := newFault(h, n, syscall.EIO, false, true)
				srv, err := Open(Options{FS: f, Dir: "/data", Mode: mode})
				if err == nil {
					_ = srv.Shutdown(background()) // its error is the file system's
				}
				if open := h.open.Load(); open != 0 && mode != storage.LSM { // Pebble forgets one when an Open of it fails halfway
					t.Fatalf("after a fault in operation %d of a start (%v) %d files are open", n, err, open)
				}
				if !f.struck.Load() {
					break
				}
			}
		})
	}
}

// A start that fails can be tried as often as one likes: there is one more segment at most, and nothing is lost.
func TestStartsThatFailLeaveNothing(t *testing.T) {
	for _, mode := range storage.Modes() {
		t.Run(string(mode), func(t *testing.T) {
			mem := vfs.NewMem()
			srv := open(t, Options{FS: mem, Mode: mode, SegmentBytes: 2000, CheckpointBytes: -1})
			c := speak(t, srv)
			for i := range 100 {
				c.do("SET k" + strconv.Itoa(i) + " " + strings.Repeat("v", 100))
			}
			shutdown(t, srv)
			before, err := segmentNames(mem, "/data/wal")
			if err != nil {
				t.Fatal(err)
			}
			failed := 0
			for n := int32(0); n < 30; n++ {
				srv, err := Open(Options{FS: newFault(mem, n/2, syscall.EIO, false, true), Dir: "/data", Mode: mode, SegmentBytes: 2000})
				if err != nil {
					failed++
				} else {
					_ = srv.Shutdown(background()) // its error is the file system's
				}
			}
			if failed < 10 {
				t.Fatalf("only %d starts fail", failed)
			}
			after, err := segmentNames(mem, "/data/wal")
			if err != nil || len(after) > len(before)+1 || !slices.Equal(before, after[:len(before)]) {
				t.Errorf("segments %v, %v; before %v", after, err, before)
			}
			speak(t, open(t, Options{FS: mem, Mode: mode})).want("DBSIZE", ":100\r\n")
		})
	}
}

// However much is written, a start replays no more than about what CheckpointBytes says.
func TestTheLogStaysShort(t *testing.T) {
	for _, mode := range storage.Modes() {
		t.Run(string(mode), func(t *testing.T) {
			const most = 64 << 10
			mem := vfs.NewMem()
			srv := open(t, Options{FS: mem, Mode: mode, SegmentBytes: 16 << 10, CheckpointBytes: most})
			c := speak(t, srv)
			for range 1000 {
				c.want("SET k "+strings.Repeat("v", 500), ok)
			}
			until(t, "a checkpoint is made", func() bool { return srv.checkpoints.count.Load() > 0 })
			until(t, "the log is short", func() bool { return srv.db.log.Stats().DiskBytes < most })
			shutdown(t, srv)
			srv = open(t, Options{FS: mem, Mode: mode})
			if n := srv.replayed.Log.Bytes; n > most {
				t.Errorf("%d bytes are replayed", n)
			}
			speak(t, srv).want("STRLEN k", ":500\r\n")
		})
	}
}
