package sim

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"testing"
	"testing/synctest"

	"github.com/kemudi/kemudi/internal/plane"
	"github.com/kemudi/kemudi/internal/store/mem"
	"github.com/kemudi/kemudi/internal/task"
)

// Plane runs a control plane without nodes until the test ends, for tests that
// say in Go what they do. It returns when the API can be used. The default store
// is an empty one in memory, the default logger silent.
func Plane(t testing.TB, o plane.Options) *plane.Plane {
	t.Helper()
	if o.Store == nil {
		o.Store = mem.New(mem.Options{})
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	plane, err := plane.New(o)
	if err != nil {
		t.Fatal(err)
	}
	g := task.NewGroup(t.Context())
	g.Go("control plane", plane.Run)
	t.Cleanup(func() {
		g.Cancel(context.Canceled)
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	})
	select {
	case <-plane.Ready():
	case <-g.Context().Done():
		t.Fatal(g.Wait())
	}
	return plane
}

// bubbled matches what begins the stack of a goroutine of a bubble.
var bubbled = regexp.MustCompile(`(?m)^goroutine .*, synctest bubble `)

// Goroutines returns how many there are in the bubble of a test once all others of it wait.
// runtime.NumGoroutine would also count what does its last steps, and what is outside.
func Goroutines(t *testing.T) int {
	t.Helper()
	synctest.Wait()
	stacks := make([]byte, 1<<20)
	for {
		n := runtime.Stack(stacks, true)
		if n < len(stacks) {
			return len(bubbled.FindAll(stacks[:n], -1))
		}
		stacks = make([]byte, 2*len(stacks))
	}
}

// Seeds plays a random test n times, each with a seed of its own that names the
// subtest. KEMUDI_SEED plays one seed again.
func Seeds(t *testing.T, n int, play func(t *testing.T, rng *rand.Rand)) {
	t.Helper()
	seeds := make([]uint64, n)
	for i := range seeds {
		seeds[i] = rand.Uint64()
	}
	if s := os.Getenv("KEMUDI_SEED"); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seeds = []uint64{seed}
	}
	for _, seed := range seeds {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			play(t, rand.New(rand.NewPCG(seed, 0)))
		})
	}
}
