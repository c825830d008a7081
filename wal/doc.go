// Package wal is the write-ahead log of a server that acknowledges a write only after its record has reached a named
// level: the process's buffer, the operating system, or the device (see [Policy]).
//
// # Why a format of our own
//
// The usual log writers hand every record to a flushing goroutine and keep what is not synced in memory. That suits a
// log that syncs every commit. This one must also be fast and honest when a commit means "write(2) has returned":
// records are framed into a buffer by the goroutine that appends them, and the first goroutine that commits writes
// everything buffered, its own record and those of all others, with one system call (leader and followers).
//
// # Files
//
// A log is a directory of segments named NNNNNNNNNN.wal, ten decimal digits, numbered without a gap. All integers are
// little-endian, all checksums are CRC-32C (Castagnoli).
//
//	segment   +--------------------+-------+-------+-----+-------+
//	          | segment header, 52 | frame | frame | ... | frame |
//	          +--------------------+-------+-------+-----+-------+
//
//	segment header   0        6         8          24       32         40    48         52
//	                 +--------+---------+----------+--------+----------+-----+----------+
//	                 | kvmark | version | identity | number | previous | id  | checksum |
//	                 +--------+---------+----------+--------+----------+-----+----------+
//	                   version: 2                   checksum of the 48 bytes before it
//
//	frame   0      1          5           9           13
//	        +------+----------+-----------+-----------+----------------+
//	        | kind | length   | head sum  | body sum  | payload        |
//	        +------+----------+-----------+-----------+----------------+
//	          head sum: identity (16), segment number (8), offset of the frame in the segment (8), kind, length
//	          body sum: the same bytes, then the payload
//
//	kind    'R' record          payload: the caller's bytes
//	        'M' masked record   payload: mask (8), the caller's bytes xor the mask, repeated
//	        'S' synced mark     payload: offset (8)
//	        'E' end of segment  payload: offset (8)
//	        'N' next mark       payload: 'N'; behind 'E', in front of the next sector boundary or right behind it
//
// Both sums cover where the frame stands, so stale, misplaced or recycled bytes never pass, and a search for frames may
// try every byte offset. The head sum exists for that search: a length is believed, and its bytes are read, only after
// four bytes of proof.
//
// # What belongs together
//
// The identity names the log among all others; it is in every header and in every record's checksum, so nothing of another
// log is taken for a part of this one. The id of a segment is random, and the next segment repeats it as previous: so two
// segments that were not written one behind the other are told apart from two that were, whatever their numbers say. A
// checkpoint and the note of a clean end refer to a segment by number and id.
//
// Under [Always], a segment that has become long is written over zeros, which are written ahead a mebibyte at a time: what is
// synced then changes neither the length nor the blocks of the file.
//
// # What is known to be synced
//
// The offset in a mark is how far fdatasync is known to have returned for this segment. A mark travels in front of the
// next batch and costs no system call; when no batch follows, the background goroutine writes and syncs it by itself.
// The end frame carries such an offset too. It closes a segment, and only a next mark and zeros may follow it. A segment is ended and
// synced, the next one is created with its header and its directory entry synced, and then the ended one is given its next mark,
// synced as well, before a record goes to the new one. So a newest segment that is gone, or has lost its header, is noticed: the one in
// front of it says that it was complete. Segments that were written before there were such marks are read as ever.
//
// # What a start does with damage
//
// Damage in any segment but the newest, a segment without end frame that is not the newest, and a missing segment are
// corruption: [Open] refuses, and names file and offset. So is damage in front of an offset that a readable mark vouches
// for, wherever in the newest segment that mark stands. The rest of the newest segment was never known to be synced. Zeros
// up to the end of the file are its normal end. Other damage there is an unsynced tail, which is cut and reported,
// unless readable frames stand behind it and the way in which crashes lose data does not explain it:
//
// A crash loses unsynced data by whole sectors of 512 bytes, as they reach the device one by one and each at one moment,
// or by ending the file early. A sector that was never written reads as zeros; one that was written before reads as it
// was then: the frames of earlier batches up to a frame boundary, and zeros from there on. Hence a frame is unreadable
// after a crash only if
//
//	(a) it would begin in zeros that reach to the end of its sector, or
//	(b) a sector that holds a part of it (of its head, if the head sum is wrong) is zeros throughout.
//
// In return, nothing that was written looks like that, even with one bit flipped: the first byte of a frame is a letter,
// and a payload with long runs of zeros is stored masked (kind 'M'), so that no sector is zeros. Damage of any other shape in
// front of readable frames is therefore corruption under every policy, also where marks do not reach.
//
// A tail is cut in place: it is overwritten with zeros, synced, and the segment is ended. Each step leaves a file that the
// same rules read in the same way, so a start may be interrupted at any moment and run again.
package wal
