package etcd

import (
	"context"
	"errors"
	"io"
	"log"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// lab is a cluster of raft members whose messages come late, in any order, or not at all.
type lab struct {
	*testing.T
	*rand.Rand
	nodes    map[uint64]*raft.RawNode
	disks    map[uint64]*raft.MemoryStorage
	applied  map[uint64]uint64
	terms    map[uint64]uint64 // of the entries that were applied last
	wire     []*raftpb.Message
	answered uint64 // the last entry that any member has applied: its writer may have heard
	cut      uint64 // hears nobody, nobody hears it, and its clock is slow; 0: nobody
	leaders  map[uint64]bool
	reads    []*labRead
	count    map[string]int
}

// labRead is a question of a member to another one.
type labRead struct {
	asker, other, answered uint64
	said                   *Standing // nil: there is no answer yet
}

func newLab(t *testing.T, random *rand.Rand, members int) *lab {
	l := &lab{
		T: t, Rand: random, nodes: map[uint64]*raft.RawNode{}, disks: map[uint64]*raft.MemoryStorage{}, applied: map[uint64]uint64{}, terms: map[uint64]uint64{},
		leaders: map[uint64]bool{}, count: map[string]int{}, answered: 1,
	}
	var voters []uint64
	for id := range uint64(members) {
		voters = append(voters, id+1)
	}
	for _, id := range voters {
		l.disks[id] = raft.NewMemoryStorage()
		first := &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{Index: new(uint64(1)), Term: new(uint64(1)), ConfState: &raftpb.ConfState{Voters: voters}}}
		l.must(l.disks[id].ApplySnapshot(first))
		l.applied[id], l.terms[id] = 1, 1
		l.start(id)
	}
	return l
}

func (l *lab) must(err error) {
	l.Helper()
	if err != nil {
		l.Fatal(err)
	}
}

// start makes a member of what is on its disk.
func (l *lab) start(id uint64) {
	n, err := raft.NewRawNode(&raft.Config{
		ID: id, ElectionTick: 6, HeartbeatTick: 1, Storage: l.disks[id], Applied: l.applied[id], MaxSizePerMsg: 1 << 20, MaxInflightMsgs: 256,
		CheckQuorum: true, PreVote: true, Logger: &raft.DefaultLogger{Logger: log.New(io.Discard, "", 0)},
	})
	l.must(err)
	l.nodes[id] = n
}

// work has a member write what it has to, send its messages, and apply what is agreed upon.
func (l *lab) work(id uint64) {
	n := l.nodes[id]
	if !n.HasReady() {
		return
	}
	rd := n.Ready()
	if !raft.IsEmptyHardState(rd.HardState) {
		l.must(l.disks[id].SetHardState(rd.HardState))
	}
	if !raft.IsEmptySnap(rd.Snapshot) {
		l.Fatal("a snapshot, though logs are kept whole")
	}
	l.must(l.disks[id].Append(rd.Entries))
	l.wire = append(l.wire, rd.Messages...)
	for _, e := range rd.CommittedEntries {
		l.applied[id], l.terms[id] = e.GetIndex(), e.GetTerm()
		l.answered = max(l.answered, e.GetIndex())
	}
	n.Advance(rd)
}

// deliver gives one of the messages to whom it is for, or loses it.
func (l *lab) deliver() {
	if len(l.wire) == 0 {
		return
	}
	i := l.IntN(len(l.wire))
	m := l.wire[i]
	l.wire[i] = l.wire[len(l.wire)-1]
	l.wire = l.wire[:len(l.wire)-1]
	if n := l.nodes[m.GetTo()]; n != nil && m.GetTo() != l.cut && m.GetFrom() != l.cut && l.IntN(30) > 0 {
		_ = n.Step(m) // it may be too old
	}
}

// read takes a question one step further, or asks another one.
func (l *lab) read(asker uint64) {
	if len(l.reads) < 4 && l.IntN(2) == 0 {
		// What it knows of who leads may be old: anybody may be asked.
		if other := uint64(1 + l.IntN(len(l.nodes))); other != asker {
			l.reads = append(l.reads, &labRead{asker: asker, other: other, answered: l.answered})
		}
		return
	}
	if len(l.reads) == 0 {
		return
	}
	i := l.IntN(len(l.reads))
	r := l.reads[i]
	if r.said == nil {
		said := standingOf(l.nodes[r.other].Status(), l.terms[r.other], r.asker)
		r.said = &said
		return
	}
	l.reads = append(l.reads[:i:i], l.reads[i+1:]...)
	index, ok := r.said.agreed(l.nodes[r.asker].Status(), l.terms[r.asker])
	switch {
	case !ok:
		l.count["refused"]++
		return
	case r.said.Leads:
		l.count["held by who follows"]++
	default:
		l.count["held by who leads"]++
	}
	if index < r.answered {
		l.Fatalf("member %d asked %d when entry %d was answered, and took it for %d", r.asker, r.other, r.answered, index)
	}
}

func (l *lab) step() {
	id := uint64(1 + l.IntN(len(l.nodes)))
	n := l.nodes[id]
	switch p := l.IntN(1000); {
	case p < 450:
		l.deliver()
	case p < 700:
		l.work(id)
	case p < 790:
		if id != l.cut || l.IntN(30) == 0 {
			n.Tick()
		}
	case p < 870:
		_ = n.Propose([]byte("x")) // nobody may lead
	case p < 990:
		l.read(id)
	case p < 991:
		l.cut = uint64(l.IntN(2 * (len(l.nodes) + 1))) // every other time nobody
	case p < 994:
		n.TransferLeader(uint64(1 + l.IntN(len(l.nodes))))
	case p < 997: // it loses what is not on its disk
		l.start(id)
	default: // all that is on its way is lost, or a member hears nothing for so long that others stand for election
		l.wire = nil
		for range 15 {
			n.Tick()
			l.work(id)
		}
	}
	if st := n.BasicStatus(); st.RaftState == raft.StateLeader {
		l.leaders[st.GetTerm()] = true
	}
}

// TestWhatTwoAgreeUponIsNoOlderThanTheQuestion has members ask others, some of which lead or are led by
// who asks, while leaders change: what holds is no less than what any member had answered to anybody before.
func TestWhatTwoAgreeUponIsNoOlderThanTheQuestion(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	total, terms := map[string]int{}, 0
	for life := range 150 {
		l := newLab(t, rand.New(rand.NewPCG(seed, uint64(life))), 2+life%2)
		for range 6000 {
			l.step()
		}
		for what, n := range l.count {
			total[what] += n
		}
		terms += len(l.leaders)
	}
	if t.Logf("%v in %d terms", total, terms); total["held by who follows"] < 1000 || total["held by who leads"] < 1000 || total["refused"] < 1000 || terms < 1000 {
		t.Errorf("got %v in %d terms: too few to show anything", total, terms)
	}
}

func TestMoreThanThreeMembersAskByRaft(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	l := newLab(t, rand.New(rand.NewPCG(seed, 0)), 4)
	for range 30_000 {
		l.step()
	}
	if len(l.count) != 1 || l.count["refused"] == 0 {
		t.Errorf("of four members: got %v, want none that holds", l.count)
	}
}

// TestWhoComesMeanwhileSharesTheNextQuestion has callers come before and after a question was asked.
func TestWhoComesMeanwhileSharesTheNextQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQuestions()
		var asked atomic.Int64
		ask := func() (uint64, bool) {
			n := asked.Add(1)
			time.Sleep(time.Second)
			return uint64(n), true
		}
		var wg sync.WaitGroup
		got := make([]uint64, 100)
		for i := range got {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				index, ok := q.share(t.Context(), ask)
				if !ok {
					t.Errorf("caller %d was not answered", i)
				}
				got[i] = index
			})
		}
		wg.Wait()
		// The first asks for itself, all others wait for that and share the next question.
		if got[0] != 1 || got[1] != 2 || got[99] != 2 || asked.Load() != 2 {
			t.Errorf("got %v by %d questions", got, asked.Load())
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("enough"))
		if _, ok := q.share(ctx, func() (uint64, bool) { return 0, false }); ok {
			t.Error("an answer that does not hold was taken")
		}
		if !q.pausing() {
			t.Error("after an answer that does not hold somebody is asked at once")
		}
		if time.Sleep(questionPause + time.Millisecond); q.pausing() {
			t.Error("nobody is asked any more")
		}
	})
}
