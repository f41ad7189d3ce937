package scavenge

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const someMaps = `00400000-0300b000 r-xp 00000000 08:01 4711                               /usr/bin/kemudi
Size:              45100 kB
Anonymous:             0 kB
VmFlags: rd ex mr mw me
0300b000-06f56000 r--p 02c0b000 08:01 4711                               /usr/bin/kemudi
Anonymous:             0 kB
06e00000-06f56000 r--p 02c0b000 08:01 4711                               /usr/bin/kemudi
Anonymous:             8 kB
06f56000-070bd000 rw-p 06b56000 08:01 4711                               /usr/bin/kemudi
Anonymous:             0 kB
070bd000-07100000 r--s 00000000 08:01 4711                               /usr/bin/kemudi
Anonymous:             0 kB
31c2a0800000-31c2a5400000 rw-p 00000000 00:00 0
Anonymous:             0 kB
7f886286e000-7f8862d00000 r--p 00000000 08:01 4712                       /usr/bin/kemudi.old
Anonymous:             0 kB
7ffd11111000-7ffd11113000 r-xp 00000000 00:00 0                          [vdso]
Anonymous:             0 kB
`

func TestFindsWhatHasNotChanged(t *testing.T) {
	got, err := unchanged(strings.NewReader(someMaps), "/usr/bin/kemudi")
	if want := []mapping{{0x400000, 0x300b000}, {0x300b000, 0x6f56000}, {0x70bd000, 0x7100000}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %x, %v; want %x", got, err, want)
	}
	if _, err := unchanged(strings.NewReader("zz-10 r-xp 0 08:01 1 /p\n"), "/p"); err == nil {
		t.Error("an address that is none was accepted")
	}
}

// Not run beside other tests: they would fill the memory again.
func TestGivesBackMemoryOnlyWhenIdle(t *testing.T) {
	program, err := os.ReadFile("/proc/self/exe") // is in the system's cache now
	if err != nil {
		t.Fatal(err)
	}
	path := mapped(t, 2*worthPages) // as a start touches the whole program: that of this test is too small to be worth it
	touch(t, path)
	before, err := filePages()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(forgetProgram(), forget(path)); err != nil {
		t.Fatal(err)
	}
	after, err := filePages()
	if err != nil || after >= before/2 {
		t.Errorf("pages of files in memory: got %d, %v; want far fewer than %d", after, err, before)
	}
	again, err := os.ReadFile("/proc/self/exe") // runs on, over the same code
	if err != nil || !slices.Equal(program, again) {
		t.Errorf("the program is not what it was: %v", err)
	}

	// A collection that runs while the garbage is in use would count it among what is not.
	runtime.GC()
	percent := debug.SetGCPercent(-1)
	defer debug.SetGCPercent(percent)
	garbage := make([]byte, 4*worthHeap)
	for i := range garbage {
		garbage[i] = 1
	}
	if garbage[len(garbage)-1] != 1 { // the last use
		t.Fatal("unreachable")
	}
	r := scavenger{let: time.Now()}
	if heap, _, err := r.look(); heap != 0 || err != nil {
		t.Errorf("first look: got %d, %v; want nothing, it is not known how much there is to do", heap, err)
	}
	r.cpu = 0 // as if everything so far had been done since the last look
	if heap, _, err := r.look(); heap != 0 || err != nil {
		t.Errorf("look while busy: got %d, %v; want nothing", heap, err)
	}
	r.at = r.at.Add(-time.Hour) // as if nothing had been done for an hour
	if heap, _, err := r.look(); heap < worthHeap || err != nil {
		t.Errorf("look when idle: got %d, %v; want the garbage of %d", heap, err, 4*worthHeap)
	}
	r.at = r.at.Add(-time.Hour)
	if heap, _, err := r.look(); heap != 0 || err != nil {
		t.Errorf("second look when idle: got %d, %v; want nothing more", heap, err)
	}

	r.o.Mapped = func(forget func(string) error) error { return forget(path) }
	for _, tc := range []struct {
		let  time.Time
		gone bool
	}{{time.Now(), false}, {time.Now().Add(-2 * pause), true}} {
		touch(t, path)
		r.at, r.let = r.at.Add(-time.Hour), tc.let
		if _, pages, err := r.look(); err != nil || (pages > worthPages) != tc.gone {
			t.Errorf("look with a file in memory, last let go %s ago: got %d, %v; want it gone: %v", time.Since(tc.let), pages, err, tc.gone)
		}
	}
}

func TestPagesAreGivenBackOnceMoreThanIdleWorkNeeds(t *testing.T) {
	const mib = 1 << 20
	r := scavenger{}
	for _, step := range []struct {
		pages int64
		since time.Duration
		want  bool
	}{
		{firstPages, time.Hour, false}, // never given back: it is not known what is needed
		{firstPages + 1, time.Hour, true},
		{30 * mib, time.Second, false}, // a moment after
		{12 * mib, soon, false},
		{17 * mib, 2 * soon, false},
		{16 * mib, 2 * pause, false},
		{16*mib + 1, 3 * pause, true},
		{22 * mib, pause, false}, // it was not idle before
		{worthPages + 1, 2 * pause, true},
	} {
		got := r.worth(step.pages, step.since)
		if got != step.want {
			t.Errorf("%d MiB after %s: got %v, want %v", step.pages/mib, step.since, got, step.want)
		}
		if got {
			r.let, r.need = time.Now(), 0
		}
	}
}

func TestLessGarbageGathersWhereMuchIsAlive(t *testing.T) {
	const mib, rarely, often = 1 << 20, 0.01, 0.3
	for _, tc := range []struct {
		live  int64
		share float64
		want  int
	}{
		{0, rarely, 100}, {96 * mib, rarely, 100}, {97 * mib, rarely, 50}, {10_000 * mib, rarely, 50},
		{96 * mib, often, 100}, {108 * mib, often, 88}, {120 * mib, often, 80}, {10_000 * mib, often, 80},
		{10_000 * mib, rareCollections, 50}, {10_000 * mib, 0.05, 65}, {10_000 * mib, oftenCollections, 80},
	} {
		if got := garbageFor(tc.live, tc.share); got != tc.want {
			t.Errorf("%d MiB alive, collections take %.2f: got %d %%, want %d", tc.live/mib, tc.share, got, tc.want)
		}
	}
	r := scavenger{percent: 85} // as with much alive before
	r.pace(time.Hour)
	if got := debug.SetGCPercent(100); got != 100 || r.percent != 100 {
		t.Errorf("little is alive again: got %d %%, want 100", got)
	}
}

// mapped returns a file of so many bytes that this process has mapped.
func mapped(t *testing.T, size int) string {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "mapped"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(int64(size)); err != nil {
		t.Fatal(err)
	}
	data, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Munmap(data); err != nil {
			t.Error(err)
		}
	})
	return f.Name()
}

// touch brings the pages of a mapped file into memory.
func touch(t *testing.T, file string) {
	t.Helper()
	maps, err := os.Open("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	defer maps.Close()
	list, err := unchanged(maps, file)
	if err != nil || len(list) == 0 {
		t.Fatalf("mappings of %s: got %v, %v", file, list, err)
	}
	for _, m := range list {
		if _, _, code := unix.Syscall(unix.SYS_MADVISE, m.start, m.end-m.start, unix.MADV_POPULATE_READ); code != 0 {
			t.Fatal(code)
		}
	}
}
