package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/internal/up"
)

// Sizes of what several servers are asked.
const (
	serversJoined = 3
	writesTimed   = 1000
	getsOfSeveral = 10_000

	serverPort = 7443 // one more for each server
	peerPort   = 7380 // likewise
)

// several are the servers of one cluster, each a control plane alone, on one machine.
type several struct {
	b       *bench
	servers []*server
	access  []*access
	rounds  int // of writes
}

// memberPlace is where the server of a number is.
func memberPlace(dir string, number int) place {
	name := strconv.Itoa(number)
	return newPlace(dir, name+"-member", "server", "--disable-agent", "--node-name", memberName(number),
		"--secure-port", strconv.Itoa(serverPort+number), "--peer-port", strconv.Itoa(peerPort+number))
}

func memberName(number int) string { return "server-" + strconv.Itoa(number) }

// severalServers measures three servers beside one.
func (b *bench) severalServers(ctx context.Context) (err error) {
	c := &several{b: b}
	defer func() { err = errors.Join(err, c.remove(ctx)) }()
	if err := c.start(ctx, 0); err != nil {
		return err
	}
	if err := c.load(ctx, writesOne, getsOne); err != nil {
		return err
	}
	began := time.Now()
	for i := 1; i < serversJoined; i++ {
		if err := c.start(ctx, i); err != nil {
			return err
		}
	}
	if err := b.set(serversReady, time.Since(began).Seconds(), nil); err != nil {
		return err
	}
	var pids []int
	for _, s := range c.servers {
		pids = append(pids, s.cmd.Process.Pid)
	}
	rest, err := b.atRest(ctx, pids)
	if err != nil {
		return err
	}
	all := mean(rest)
	if err := errors.Join(b.set(serversCPU, all.share, nil), b.set(serversMemory, mib(all.rss), nil), b.set(serversAnon, mib(all.anon), nil)); err != nil {
		return err
	}
	if err := c.load(ctx, writesThree, getsThree); err != nil {
		return err
	}
	if err := c.writeToLeader(ctx, writesLeader); err != nil {
		return err
	}
	if _, err := c.writeBesideOne(ctx, writesStill); err != nil {
		return err
	}
	r := b.results
	if err := b.set(stillRatio, r[writesStill]/r[writesOne], nil); err != nil {
		return err
	}
	if err := errors.Join(b.set(writesRatio, r[writesThree]/r[writesOne], nil), b.set(getsRatio, r[getsThree]/r[getsOne], nil)); err != nil {
		return err
	}
	return c.takeOver(ctx)
}

// remove removes every trace of the servers.
func (c *several) remove(ctx context.Context) (err error) {
	for i, s := range c.servers {
		err = errors.Join(err, s.kill(), memberPlace(c.b.dir, i).remove(ctx, c.b.bin))
	}
	return err
}

// start starts the server of a number; all but the first join it by a token.
func (c *several) start(ctx context.Context, number int) error {
	p := memberPlace(c.b.dir, number)
	if number > 0 {
		token, err := up.CreateToken(ctx, up.Access{DataDir: c.servers[0].data}, up.TokenOptions{Life: patience, Server: true, Uses: 1})
		if err != nil {
			return err
		}
		file := filepath.Join(c.b.dir, "token")
		if err := os.WriteFile(file, []byte(token.Token), 0o600); err != nil {
			return fmt.Errorf("write token: %w", err)
		}
		p.args = append(p.args, "--server", "https://"+address+":"+strconv.Itoa(serverPort), "--token-file", file)
	}
	s, err := p.start(c.b.bin)
	if err != nil {
		return err
	}
	c.servers = append(c.servers, s)
	if _, err := s.ready(ctx); err != nil {
		return err
	}
	a, err := awaitAPI(ctx, s)
	c.access = append(c.access, a)
	return err
}

// load measures writes of one client, and reads of the newest state by many, of the server
// that was started last.
func (c *several) load(ctx context.Context, writes, gets measure) error {
	last := len(c.servers) - 1
	if _, err := c.write(ctx, last, writes); err != nil {
		return err
	}
	l := &loader{c.b, c.servers[last], c.access[last]}
	rate, _, err := l.all(ctx, getsOfSeveral, call{method: http.MethodGet, media: mediaJSON, path: func(i int) string {
		return fmt.Sprintf("/api/v1/namespaces/default/configmaps/timed-%d-%d", c.rounds, i%writesTimed)
	}})
	return c.b.set(gets, rate, err)
}

// write measures writes of one client to the server of a number.
func (c *several) write(ctx context.Context, number int, m measure) (time.Duration, error) {
	maps := c.access[number].clients.CoreV1().ConfigMaps(metav1.NamespaceDefault)
	c.rounds++
	took, err := each(writesTimed, func(i int) error {
		_, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("timed-%d-%d", c.rounds, i)}, Data: map[string]string{"key": "value"}}, metav1.CreateOptions{})
		return err
	})
	return took, c.b.set(m, m.unit.of(took), err)
}

// writeToLeader measures writes to the server that leads, which needs to tell no other of them first.
func (c *several) writeToLeader(ctx context.Context, m measure) error {
	leads, _, err := c.leader(ctx)
	if err == nil {
		_, err = c.write(ctx, leads, m)
	}
	return err
}

// writeBesideOne measures writes to a server that does not lead while the third stands still. The two are a majority, and
// each has a processor, as it would on a machine of its own: of three on two processors one waits for another's work, the third's
// being of no use to the write.
func (c *several) writeBesideOne(ctx context.Context, m measure) (_ time.Duration, err error) {
	_, asked, err := c.leader(ctx)
	if err != nil {
		return 0, err
	}
	third := c.servers[(asked+1)%serversJoined].cmd.Process
	if err := third.Signal(unix.SIGSTOP); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, third.Signal(unix.SIGCONT)) }()
	return c.write(ctx, asked, m)
}

// takeOver measures how long it takes the others to go on when the server whose controllers
// run has ended: killed first, and when it is back, the next one stopped in order.
func (c *several) takeOver(ctx context.Context) error {
	leads, other, err := c.leader(ctx)
	if err != nil {
		return err
	}
	s := c.servers[leads]
	c.b.say("server %d leads and is killed", leads)
	began := time.Now()
	if err := s.kill(); err != nil {
		return err
	}
	g := task.NewGroup(ctx)
	g.Go("work", func(ctx context.Context) error {
		return c.b.goesOn(ctx, c.access[other], "killed", began, [3]measure{killWrites, killControllers, killScheduler})
	})
	g.Go("endpoints", func(ctx context.Context) error {
		_, err := try(ctx, func() (struct{}, error) {
			return struct{}{}, c.access[other].left(ctx, int32(serverPort+leads))
		})
		return c.b.set(killEndpoints, time.Since(began).Seconds(), err)
	})
	if err := g.Wait(); err != nil {
		return err
	}
	again, err := memberPlace(c.b.dir, leads).start(c.b.bin)
	if err != nil {
		return err
	}
	c.servers[leads] = again
	if _, err := again.ready(ctx); err != nil {
		return err
	}
	if leads, other, err = c.leader(ctx); err != nil {
		return err
	}
	c.b.say("server %d leads and is stopped", leads)
	g = task.NewGroup(ctx)
	began = time.Now()
	g.Go("stop", func(context.Context) error { return c.servers[leads].stop() })
	g.Go("work", func(ctx context.Context) error {
		return c.b.goesOn(ctx, c.access[other], "stopped", began, [3]measure{stopWrites, stopControllers, stopScheduler})
	})
	return g.Wait()
}

// leader is the server whose controllers run, and one of the others.
func (c *several) leader(ctx context.Context) (leads, other int, _ error) {
	lease, err := try(ctx, func() (string, error) {
		l, err := c.access[1].clients.CoordinationV1().Leases(metav1.NamespaceSystem).Get(ctx, "kube-controller-manager", metav1.GetOptions{})
		if err != nil || l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity == "" {
			return "", errors.Join(err, errors.New("no server leads"))
		}
		return *l.Spec.HolderIdentity, nil
	})
	if err != nil {
		return 0, 0, err
	}
	leads = slices.IndexFunc([]int{0, 1, 2}, func(i int) bool { return strings.Contains(lease, memberName(i)) })
	if leads < 0 {
		return 0, 0, fmt.Errorf("the controllers run in %q, which is none of the servers", lease)
	}
	return leads, (leads + 1) % serversJoined, nil
}

// left is no error if a server is not among the endpoints of the API any more.
func (a *access) left(ctx context.Context, port int32) error {
	e, err := a.clients.CoreV1().Endpoints(metav1.NamespaceDefault).Get(ctx, "kubernetes", metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, s := range e.Subsets {
		if slices.ContainsFunc(s.Ports, func(p corev1.EndpointPort) bool { return p.Port == port }) {
			return fmt.Errorf("port %d is an endpoint of the API", port)
		}
	}
	return nil
}

// goesOn measures how long after something a server takes writes, a controller does something, and
// the scheduler.
func (b *bench) goesOn(ctx context.Context, a *access, name string, began time.Time, measures [3]measure) error {
	g := task.NewGroup(ctx)
	c := a.clients.CoreV1()
	since := func(i int, f func(ctx context.Context) error) {
		g.Go("wait", func(ctx context.Context) error {
			_, err := try(ctx, func() (struct{}, error) {
				limited, cancel := context.WithTimeout(ctx, time.Second)
				defer cancel()
				return struct{}{}, f(limited)
			})
			return b.set(measures[i], time.Since(began).Seconds(), err)
		})
	}
	since(0, func(ctx context.Context) error {
		_, err := c.ConfigMaps(metav1.NamespaceDefault).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: name}}, metav1.CreateOptions{})
		return err
	})
	since(1, func(ctx context.Context) error { // a namespace gets its account by a controller
		_, err := c.ServiceAccounts(name).Get(ctx, "default", metav1.GetOptions{})
		if err != nil {
			_, _ = c.Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}) // which may be there
		}
		return err
	})
	since(2, func(ctx context.Context) error { // a pod that fits nowhere is told so
		pod, err := c.Pods(metav1.NamespaceDefault).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			_, _ = c.Pods(metav1.NamespaceDefault).Create(ctx, webPod(name), metav1.CreateOptions{}) // likewise
			return err
		}
		if len(pod.Status.Conditions) == 0 {
			return errors.New("the scheduler has not looked at the pod")
		}
		return nil
	})
	return g.Wait()
}
