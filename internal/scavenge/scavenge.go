// Package scavenge gives a process's memory back to the system while it has little to do: free heap,
// and pages of the program and of other mapped files, which come back by being used. Each process that
// runs long and rests has it: servers, agents, edges, parts alone. What is worth giving back, and when,
// is decided here; the reasons are in docs/decisions/008-memory-at-rest.md.
package scavenge

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kemudi/kemudi/internal/task"
)

// When a process gives back memory, and how much is worth it.
const (
	// every is the time between two looks at how busy the process is.
	every = 4 * time.Second
	// idleShare is the share of one processor, used since the last look, up to which
	// the process counts as idle.
	idleShare = 0.03
	// worthHeap is how much free heap is worth a collection.
	worthHeap = 6 << 20
	// worthPages is how much mapped memory of files is worth the page faults that
	// follow. An idle node's work brings back less.
	worthPages = 24 << 20
	// firstPages is how much of it is the first time: a start has left most of that there.
	firstPages = 16 << 20
	// morePages is how much more of it than idle work had soon brought back is worth
	// them, too: what is done seldom, a collection for example, has left it there.
	morePages = 4 << 20
	// soon is how long idle work is given for that.
	soon = 20 * time.Second
	// pause is how long pages stay mapped at least.
	pause = time.Minute
	// busyPages is how much mapped memory of files a busy process may have before it
	// gives back the pages of other files than the program, since what they hold is read from caches, and,
	// if that was not enough, those of the program, once in a pause: what is in use comes back.
	busyPages = 64 << 20

	// largeHeap is how much may be alive before less garbage gathers than Go lets by
	// default, which is as much as is alive. It is never less than leastGarbage percent of
	// that where collections have lately taken oftenCollections of a processor, nor than rareGarbage
	// percent where they are so rare that they have taken less than rareCollections. Between those
	// it is between.
	largeHeap        = 96 << 20
	leastGarbage     = 80
	rareGarbage      = 50
	rareCollections  = 0.02
	oftenCollections = 0.08
	// garbageStep is by how many percent that changes at a time.
	garbageStep = 5
)

// Options say what there is beside the process itself. The zero value is a process that has no more.
type Options struct {
	// Idle is called whenever there is little to do. nil: nothing is to be done then.
	Idle func()
	// AfterWork is called when work has ended, before what it left behind is collected. nil: likewise.
	AfterWork func()
	// Mapped calls a function with the path of a file of which the process has mapped much and reads
	// little. The mapping stays where it is until the function returns. nil: there is none.
	Mapped func(func(file string) error) error
	// OwnGarbage says that somebody else in the process decides how much garbage may gather.
	OwnGarbage bool
	// Log is required.
	Log *slog.Logger
}

// Run gives memory back to the system whenever the process has had little to do
// for a while, until ctx ends. Of several in one process each would do the same.
func Run(ctx context.Context, o Options) error {
	r := scavenger{o: o, own: !o.OwnGarbage && os.Getenv("GOGC") == ""}
	for {
		if err := task.Sleep(ctx, every); err != nil {
			return nil
		}
		heap, pages, err := r.look()
		if err != nil {
			o.Log.Warn("memory is not given back", "err", err)
			return nil
		}
		if heap+pages > 0 {
			o.Log.Debug("gave memory back", "heap", heap, "pages", pages)
		}
	}
}

// scavenger gives memory back, and remembers what it looked like afterwards.
type scavenger struct {
	o Options

	cpu  time.Duration // processor time used until the last look
	at   time.Time     // time of the last look
	heap int64         // unused heap after the last collection
	let  time.Time     // when pages were last unmapped because there was little to do
	need int64         // pages that were mapped again soon after that; 0: not known

	busy    bool      // there was much to do since unused heap was last given back
	letBusy time.Time // when the program's pages were last unmapped all the same

	own       bool    // nobody has said how much garbage may gather
	percent   int     // how much may; 0: as much as Go lets by default
	collected float64 // processor seconds that collections had taken at the last look
	share     float64 // of a processor that they have lately taken
}

// look gives memory back if there is little to do, and says how much.
func (r *scavenger) look() (heap, pages int64, err error) {
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
		return 0, 0, fmt.Errorf("read processor time: %w", err)
	}
	cpu, now := time.Duration(used.Utime.Nano()+used.Stime.Nano()), time.Now()
	idle := !r.at.IsZero() && float64(cpu-r.cpu) <= idleShare*float64(now.Sub(r.at))
	if r.own && !r.at.IsZero() {
		r.pace(now.Sub(r.at))
	}
	r.cpu, r.at = cpu, now
	if !idle {
		r.busy = true
		pages, err = r.forgetBusy(now)
		return 0, pages, err
	}
	if r.o.Idle != nil {
		r.o.Idle()
	}
	if before := unusedHeap(); before-r.heap > worthHeap {
		if r.busy {
			if r.o.AfterWork != nil {
				r.o.AfterWork()
			}
			runtime.GC() // what pools hold goes with the second collection
			r.busy = false
		}
		debug.FreeOSMemory()
		r.heap = unusedHeap()
		heap = before - r.heap
	}
	before, err := filePages()
	if err != nil || !r.worth(before, now.Sub(r.let)) {
		return heap, 0, err
	}
	if err := errors.Join(forgetProgram(), r.forgetMapped()); err != nil {
		return heap, 0, err
	}
	r.let, r.need = now, 0
	after, err := filePages()
	return heap, before - after, err
}

// worth says whether mapped pages of files are worth giving back, so long after the last time.
func (r *scavenger) worth(pages int64, since time.Duration) bool {
	if r.let.IsZero() {
		return pages > firstPages
	}
	if r.need == 0 && since >= soon {
		r.need = pages
	}
	return since >= pause && (pages > worthPages || r.need > 0 && pages > r.need+morePages)
}

// forgetBusy gives back pages of files although there is much to do, if many are in memory.
// Of a server, writing has brought there those of the database, some again and again; most are never read.
func (r *scavenger) forgetBusy(now time.Time) (pages int64, err error) {
	before, err := filePages()
	if err != nil || before <= busyPages {
		return 0, err
	}
	if err := r.forgetMapped(); err != nil {
		return 0, err
	}
	after, err := filePages()
	if err != nil || after <= busyPages || now.Sub(r.letBusy) < pause {
		return before - after, err
	}
	if err := forgetProgram(); err != nil {
		return before - after, err
	}
	r.letBusy = now
	after, err = filePages()
	return before - after, err
}

// forgetMapped gives back the pages of what the process has mapped besides.
func (r *scavenger) forgetMapped() error {
	if r.o.Mapped == nil {
		return nil
	}
	return r.o.Mapped(forget)
}

// forgetProgram gives back the pages of the program.
func forgetProgram() error {
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	return forget(program) // it is mapped for as long as the process lives
}

// pace has garbage collected sooner where much is alive, and as much garbage again would be
// too much memory. It is told how long ago the last look was.
func (r *scavenger) pace(since time.Duration) {
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/cpu/classes/gc/total:cpu-seconds"}}
	metrics.Read(samples)
	collected := samples[1].Value.Float64()
	r.share += ((collected-r.collected)/since.Seconds() - r.share) / 4
	r.collected = collected
	want := garbageFor(int64(samples[0].Value.Uint64()), r.share)
	if have := cmp.Or(r.percent, usualGarbage); want <= have-garbageStep || want >= have+garbageStep {
		debug.SetGCPercent(want)
		r.percent = want
	}
}

// usualGarbage is how much Go lets gather by default, in percent of what is alive.
const usualGarbage = 100

// garbageFor is how much garbage may gather before it is collected, in percent of what is
// alive, if collections take such a share of a processor.
func garbageFor(live int64, share float64) int {
	switch {
	case live <= largeHeap:
		return usualGarbage
	case share < rareCollections:
		return rareGarbage
	}
	most := max(leastGarbage, int(usualGarbage*largeHeap/live))
	often := min(1, (share-rareCollections)/(oftenCollections-rareCollections))
	return rareGarbage + int(often*float64(most-rareGarbage))
}

// unusedHeap is how many bytes of the heap are in memory although no object
// is there, or none that the program still knows, as far as is known.
func unusedHeap() int64 {
	samples := []metrics.Sample{{Name: "/memory/classes/heap/free:bytes"}, {Name: "/memory/classes/heap/unused:bytes"}, {Name: "/memory/classes/heap/objects:bytes"}, {Name: "/gc/heap/live:bytes"}}
	metrics.Read(samples)
	free := int64(samples[0].Value.Uint64() + samples[1].Value.Uint64())
	return free + max(0, int64(samples[2].Value.Uint64())-int64(samples[3].Value.Uint64()))
}

// filePages is how many bytes of files are mapped and in memory.
func filePages() (int64, error) {
	data, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, fmt.Errorf("read memory use: %w", err)
	}
	fields := strings.Fields(string(data)) // size, resident, of files ...
	if len(fields) < 3 {
		return 0, fmt.Errorf("read memory use: %q is too short", data)
	}
	n, err := strconv.ParseInt(fields[2], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read memory use: %w", err)
	}
	return n * int64(os.Getpagesize()), nil
}

// forget unmaps the pages of a file that this process has not changed and cannot
// change. They stay in the system's cache, and what is used is mapped again by
// the page fault that follows. The file's mappings must stay until it returns:
// what came to be in their place would be lost.
func forget(file string) error {
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		return fmt.Errorf("read mappings: %w", err)
	}
	defer f.Close()
	list, err := unchanged(f, file)
	if err != nil {
		return err
	}
	for _, m := range list {
		if _, _, code := unix.Syscall(unix.SYS_MADVISE, m.start, m.end-m.start, unix.MADV_DONTNEED); code != 0 {
			return fmt.Errorf("give back the pages of %s: %w", file, code)
		}
	}
	return nil
}

// mapping is a range of addresses.
type mapping struct{ start, end uintptr }

// unchanged finds the mappings of a file, in the form of /proc/PID/smaps, that the
// process cannot write to and that have no pages of its own: those of a program
// that is linked dynamically have some, which the loader wrote.
func unchanged(smaps io.Reader, file string) (list []mapping, _ error) {
	var at mapping
	ours := false // what is said now is of a mapping of the file
	lines := bufio.NewScanner(smaps)
	for lines.Scan() {
		line := lines.Text()
		head, rest, _ := strings.Cut(line, " ")
		if name, ok := strings.CutSuffix(head, ":"); ok {
			if ours && name == "Anonymous" && strings.TrimSpace(rest) == "0 kB" {
				list = append(list, at)
			}
			continue
		}
		// start-end rwxp offset device inode    file
		if ours = len(rest) >= 4 && rest[1] == '-' && strings.HasSuffix(rest, " "+file); !ours {
			continue
		}
		from, to, ok := strings.Cut(head, "-")
		start, err1 := strconv.ParseUint(from, 16, 64)
		end, err2 := strconv.ParseUint(to, 16, 64)
		if err := errors.Join(err1, err2); err != nil || !ok || end <= start {
			return nil, fmt.Errorf("read mappings: %q is not understood", line)
		}
		at = mapping{uintptr(start), uintptr(end)}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read mappings: %w", err)
	}
	return list, nil
}
