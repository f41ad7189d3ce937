//go:build !race

package etcd

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kemudi/kemudi/internal/store"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/internal/trace"
	"github.com/kemudi/kemudi/test/stuck"
	"github.com/kemudi/kemudi/test/wait"
)

// memberEnv has the settings of a child process that is a member.
const memberEnv = "KEMUDI_TEST_ETCD_MEMBER"

// settings are those of a member in a process of its own.
type settings struct {
	Dir, Name string
	Peer      Peer
	Join      Cluster
}

// order is what such a process is told to do, report what it says.
type order struct {
	Do   string
	Peer Peer
	Name string // of a member, or a key
	URL  string
	ID   uint64
}

type report struct {
	Err     string
	Member  Member
	Cluster Cluster
	Keys    int
}

func TestChildIsAMember(t *testing.T) {
	text := os.Getenv(memberEnv)
	if text == "" {
		t.Skip("only as the child of other tests")
	}
	var c settings
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		t.Fatal(err)
	}
	s, err := New(Options{Dir: c.Dir, Name: c.Name, Peer: c.Peer, Join: c.Join, Log: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		orders := json.NewDecoder(os.Stdin)
		for {
			var o order
			if err := orders.Decode(&o); err != nil {
				return
			}
			r := obey(s, o)
			line, err := json.Marshal(r)
			if err != nil {
				return
			}
			fmt.Printf("\nreport %s\n", line)
		}
	}()
	if err := s.Run(t.Context()); errors.Is(err, ErrRemoved) {
		fmt.Printf("\nremoved\n")
	} else if err != nil {
		t.Fatal(err)
	}
}

func obey(s *Server, o order) (r report) {
	ctx, cancel := context.WithTimeout(context.Background(), wait.Patience)
	defer cancel()
	var err error
	switch o.Do {
	case "ready":
		select {
		case <-s.Ready():
		case <-ctx.Done():
			err = ctx.Err()
		}
	case "peer":
		err = s.SetPeer(ctx, o.Peer)
	case "add":
		r.Member, r.Cluster, err = s.AddLearner(ctx, o.Name, o.URL)
	case "promote":
		err = s.Promote(ctx, o.ID)
	case "remove":
		err = s.Remove(ctx, o.ID)
	case "force":
		err = s.ForceNew(ctx)
	case "write":
		err = tryWrite(ctx, s, o.Name, "x")
	case "members":
		r.Cluster, err = s.Members(ctx)
	case "count":
		var page store.Page
		page, err = s.List(ctx, "/", store.ListOptions{})
		r.Keys = len(page.KVs)
	}
	if err != nil {
		r.Err = err.Error()
	}
	return r
}

// process is a member in a process of its own.
type process struct {
	*testing.T
	settings
	cmd    *exec.Cmd
	log    string // where it writes its log
	orders *json.Encoder
	lines  *bufio.Scanner
}

// start starts the process, and is called again after kill.
func (p *process) start() {
	p.Helper()
	exe, err := os.Executable()
	if err != nil {
		p.Fatal(err)
	}
	text, err := json.Marshal(p.settings)
	if err != nil {
		p.Fatal(err)
	}
	p.cmd = exec.Command(exe, "-test.run=^TestChildIsAMember$")
	p.cmd.Env = append(os.Environ(), memberEnv+"="+string(text), "KEMUDI_TRACE_DIR=")
	in, err := p.cmd.StdinPipe()
	if err != nil {
		p.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		p.Fatal(err)
	}
	log, err := os.CreateTemp(p.TempDir(), "log")
	if err != nil {
		p.Fatal(err)
	}
	defer log.Close()
	p.log, p.cmd.Stderr = log.Name(), log
	if err := p.cmd.Start(); err != nil {
		p.Fatal(err)
	}
	stuck.Guard(p.T, p.cmd, p.log)
	p.orders, p.lines = json.NewEncoder(in), bufio.NewScanner(out)
	cmd := p.cmd
	p.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
}

// kill kills the process with all that it is about to do.
func (p *process) kill() {
	p.Helper()
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// endsWith waits until the process ends by itself, after a line.
func (p *process) endsWith(line string) {
	p.Helper()
	defer p.limit()()
	heard := false
	for p.lines.Scan() {
		heard = heard || p.lines.Text() == line
	}
	_ = p.cmd.Wait()
	if !heard {
		p.Fatalf("%s has not said %q before its end", p.settings.Name, line)
	}
}

// limit ends a process that is silent for too long, with an explanation.
func (p *process) limit() (stop func()) {
	cmd, log := p.cmd, p.log
	var over sync.WaitGroup
	over.Add(1)
	timer := time.AfterFunc(wait.Patience+time.Minute, func() { // it has that patience itself
		defer over.Done()
		stuck.Explain(p.T, cmd, log)
	})
	return func() {
		if !timer.Stop() {
			over.Wait()
		}
	}
}

// errKilled is what is heard of an order whose process ended.
var errKilled = errors.New("the process has ended")

func (p *process) ask(o order) (report, error) {
	if err := p.orders.Encode(o); err != nil {
		return report{}, errKilled
	}
	defer p.limit()()
	for p.lines.Scan() {
		text, ok := strings.CutPrefix(p.lines.Text(), "report ")
		if !ok {
			continue
		}
		var r report
		if err := json.Unmarshal([]byte(text), &r); err != nil {
			return r, err
		}
		if r.Err != "" {
			return r, errors.New(r.Err)
		}
		return r, nil
	}
	return report{}, errKilled
}

// must asks for what may be refused for a while.
func (p *process) must(o order) report {
	p.Helper()
	ctx := within(p.T)
	for {
		r, err := p.ask(o)
		if err == nil {
			return r
		}
		if errors.Is(err, errKilled) || task.Sleep(ctx, 20*time.Millisecond) != nil {
			stuck.Explain(p.T, p.cmd, p.log)
			p.Fatalf("%s asked to %s: %v", p.settings.Name, o.Do, err)
		}
	}
}

// during kills a process while another one, or itself, does something, starts it again, and
// has the thing done.
func during(r *rand.Rand, victim, actor *process, o order) report {
	actor.Helper()
	type outcome struct {
		r   report
		err error
	}
	first := make(chan outcome, 1)
	go func() {
		r, err := actor.ask(o)
		first <- outcome{r, err}
	}()
	_ = task.Sleep(within(actor.T), time.Duration(r.IntN(40_000))*time.Microsecond)
	_ = victim.cmd.Process.Kill()
	if victim == actor {
		<-first
		_ = victim.cmd.Wait()
		victim.start()
	} else {
		_ = victim.cmd.Wait()
		victim.start()
		<-first // it may have been refused, or done
	}
	return actor.must(o)
}

func TestMembersSurviveAKillAtEachStepOfAChange(t *testing.T) {
	t.Parallel()
	trace.Proves(t, "API-004")
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	ca := newAuthority(t)
	written := 0
	write := func(p *process) {
		t.Helper()
		for range 5 {
			p.must(order{Do: "write", Name: fmt.Sprintf("/%d", written)})
			written++
		}
	}
	m0 := &process{T: t, settings: settings{Dir: t.TempDir(), Name: "m0"}}
	m0.start()
	write(m0)
	m0.Peer = ca.peer(t, "m0") // as it is started again
	during(r, m0, m0, order{Do: "peer", Peer: m0.Peer})
	write(m0)

	var others []*process
	var ids []uint64
	for _, name := range []string{"m1", "m2"} {
		m := &process{T: t, settings: settings{Dir: t.TempDir(), Name: name, Peer: ca.peer(t, name)}}
		added := during(r, m0, m0, order{Do: "add", Name: name, URL: m.Peer.Listen})
		m.Join = added.Cluster
		write(m0)
		m.start()
		_ = task.Sleep(within(t), time.Duration(r.IntN(200))*time.Millisecond)
		m.kill() // at some step of its first start
		m.start()
		m.must(order{Do: "ready"})
		victim := []*process{m0, m}[len(others)]
		during(r, victim, m0, order{Do: "promote", ID: added.Member.ID})
		m.must(order{Do: "ready"})
		write(m)
		others, ids = append(others, m), append(ids, added.Member.ID)
	}

	// The leader is killed: the others go on.
	all := []*process{m0, others[0], others[1]}
	c := m0.must(order{Do: "members"}).Cluster
	leader := slices.IndexFunc(all, func(p *process) bool {
		return slices.ContainsFunc(c.Members, func(m Member) bool { return m.Leader && m.Name == p.settings.Name })
	})
	if leader < 0 || len(c.Members) != 3 {
		t.Fatalf("got members %+v, want three and a leader", c)
	}
	all[leader].kill()
	next := all[(leader+1)%3]
	start := time.Now()
	next.must(order{Do: "write", Name: fmt.Sprintf("/%d", written)})
	written++
	t.Logf("a write %s after the kill of the leader", time.Since(start))
	write(next)
	all[leader].start()
	write(all[leader])

	for i := 1; i >= 0; i-- {
		during(r, m0, m0, order{Do: "remove", ID: ids[i]})
		for range 2 { // it stays so
			others[i].endsWith("removed")
			others[i].start()
		}
		others[i].kill()
		write(m0)
	}
	during(r, m0, m0, order{Do: "peer"})
	m0.kill()
	m0.Peer = Peer{}
	m0.start()
	write(m0)
	if n := m0.must(order{Do: "count"}).Keys; n != written {
		t.Errorf("got %d keys, want all %d that were acknowledged", n, written)
	}
	if c := m0.must(order{Do: "members"}).Cluster; len(c.Members) != 1 {
		t.Errorf("got members %+v, want one", c.Members)
	}
}
