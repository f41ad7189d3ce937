package etcd

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/kemudi/kemudi/internal/store"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/test/wait"
)

// asked is what a client asked of a key: to read it, to write a value, or, if old is set, to
// write it if the key has that value.
type asked struct{ key, old, write string }

// told is what came of it.
type told struct {
	read    string
	refused bool // by the condition
	unknown bool
}

// register is what a key of the store is to its clients.
var register = porcupine.Model{
	Init: func() any { return "" },
	Step: func(state, input, output any) (bool, any) {
		in, out, now := input.(asked), output.(told), state.(string)
		holds := in.old == "" || in.old == now
		switch {
		case in.write == "":
			return out.read == now, now
		case out.unknown && !holds:
			return true, now
		case out.unknown:
			return true, in.write
		case out.refused:
			return !holds, now
		}
		return holds, in.write
	},
	Partition: func(history []porcupine.Operation) (parts [][]porcupine.Operation) {
		by := map[string][]porcupine.Operation{}
		for _, o := range history {
			key := o.Input.(asked).key
			by[key] = append(by[key], o)
		}
		for _, part := range by {
			parts = append(parts, part)
		}
		return parts
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v -> %+v", input, output) },
}

// history is what clients have asked and been told.
type history struct {
	*testing.T
	members []atomic.Pointer[Server]
	epoch   atomic.Int64 // new keys after each fault: what is unknown of one makes all of its reads harder to judge
	begun   time.Time
	acked   atomic.Int64 // the highest revision of a write that was answered

	mu struct {
		sync.Mutex
		list                      []porcupine.Operation
		refusals, unknown, writes int
	}
}

// clientPause is the time between two questions of a client: a history that is too long is
// hard to judge.
const clientPause = 2 * time.Millisecond

// client asks one member after the other until quit is closed.
func (h *history) client(n int, r *rand.Rand, quit <-chan struct{}) {
	type seen struct {
		value string
		rev   int64
	}
	last := map[string]seen{} // as read
	for i := 0; ; i++ {
		select {
		case <-quit:
			return
		default:
		}
		s := h.members[n%len(h.members)].Load()
		in := asked{key: fmt.Sprintf("/%d/%d", h.epoch.Load(), r.IntN(4))}
		at := last[in.key]
		call := time.Since(h.begun)
		var out told
		var err error
		switch r.IntN(4) {
		case 0:
			in.write = fmt.Sprintf("%d-%d", n, i)
			out, err = h.write(s, in, store.Txn{})
		case 1:
			if at.rev == 0 {
				continue
			}
			in.old, in.write = at.value, fmt.Sprintf("%d-%d", n, i)
			out, err = h.write(s, in, store.Txn{Conds: []store.Cond{{Key: in.key, Rev: at.rev}}})
		default:
			before := h.acked.Load()
			kv, rev, e := s.Get(h.Context(), in.key)
			if e == nil && rev < before {
				h.Errorf("read at revision %d, and a write at %d was answered before", rev, before)
			}
			last[in.key] = seen{string(kv.Value), kv.Rev}
			out.read, err = string(kv.Value), e
		}
		h.note(porcupine.Operation{ClientId: n, Input: in, Output: out, Call: int64(call), Return: int64(time.Since(h.begun))}, err)
		pause := clientPause
		if err != nil {
			pause *= 20
		}
		_ = task.Sleep(h.Context(), pause)
	}
}

func (h *history) write(s *Server, in asked, t store.Txn) (told, error) {
	t.Ops = []store.Op{{Key: in.key, Value: []byte(in.write)}}
	r, err := s.Txn(h.Context(), t)
	for err == nil && r.OK {
		max := h.acked.Load()
		if r.Rev <= max || h.acked.CompareAndSwap(max, r.Rev) {
			break
		}
	}
	return told{refused: err == nil && !r.OK}, err
}

func (h *history) note(o porcupine.Operation, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	in, out := o.Input.(asked), o.Output.(told)
	switch {
	case err != nil && in.write == "", errors.Is(err, store.ErrNoMajority):
		h.mu.refusals++ // nothing was read or written
		return
	case errors.Is(err, store.ErrUnknown), errors.Is(err, ErrStopped):
		h.mu.unknown++
		out.unknown, o.Return = true, math.MaxInt64
	case err != nil:
		h.Errorf("%+v: %v", in, err)
		return
	case in.write != "":
		h.mu.writes++
	}
	o.Output = out
	h.mu.list = append(h.mu.list, o)
}

// TestClientsOfAllMembersSeeOneOrderOfWrites while members are cut off, stopped, and hand
// over.
func TestClientsOfAllMembersSeeOneOrderOfWrites(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	tr := newTrioOver(t, newLinks(t), 3)
	h := &history{T: t, members: make([]atomic.Pointer[Server], 3), begun: time.Now()}
	for i, s := range tr.servers {
		h.members[i].Store(s)
	}
	quit := make(chan struct{})
	var clients sync.WaitGroup
	for n := range 6 {
		own := rand.New(rand.NewPCG(seed, uint64(n+1)))
		clients.Go(func() { h.client(n, own, quit) })
	}
	// a little while, in which clients ask
	while := func() {
		_ = task.Sleep(within(t), time.Duration(500+r.IntN(1000))*time.Millisecond)
	}
	faults := []func(){
		func() { tr.links.isolate(tr.servers[tr.leader()].o.Name) },
		func() { tr.links.isolate(tr.servers[(tr.leader()+1)%3].o.Name) },
		func() {
			if err := tr.servers[tr.leader()].HandOver(within(t)); err != nil {
				t.Logf("hand over: %v", err)
			}
		},
		func() {
			i := tr.leader()
			h.members[i].Store(tr.restart(i))
		},
	}
	r.Shuffle(len(faults), func(i, j int) { faults[i], faults[j] = faults[j], faults[i] })
	for _, fault := range faults {
		while()
		fault()
		while()
		tr.links.heal()
		for i := range 3 {
			eventually(t, "a write to each", func() bool { return tryWrite(within(t), h.members[i].Load(), "/heal", "x") == nil })
		}
		h.epoch.Add(1)
	}
	while()
	close(quit)
	clients.Wait()
	h.judge()
}

// judge asks whether there is one order of all that was asked that explains what was told.
func (h *history) judge() {
	h.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Logf("%d asked, %d of them writes that were answered, %d unknown; %d were refused", len(h.mu.list), h.mu.writes, h.mu.unknown, h.mu.refusals)
	if h.mu.writes < 100 {
		h.Errorf("%d writes were answered, want enough to judge", h.mu.writes)
	}
	switch result, info := porcupine.CheckOperationsVerbose(register, h.mu.list, wait.Patience); result {
	case porcupine.Illegal:
		path := h.ArtifactDir() + "/history.html"
		h.Errorf("no order of the writes explains what clients have read; see %s: %v", path, porcupine.VisualizePath(register, info, path))
	case porcupine.Unknown:
		h.Errorf("it was not found out in time whether an order explains what clients have read")
	}
	// A lie is noticed.
	lie := slices.Clone(h.mu.list)
	for i := len(lie) - 1; i >= 0; i-- {
		if in := lie[i].Input.(asked); in.write == "" {
			lie[i].Output = told{read: "never written"}
			break
		}
	}
	if porcupine.CheckOperations(register, lie) {
		h.Error("a read of what was never written is found in order")
	}
}
