package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/kemudi/kemudi/internal/edge"
	"github.com/kemudi/kemudi/internal/edge/route"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/test/nginx"
)

// edgeHosts is how many hosts the edge process has.
const edgeHosts = 1000

const (
	// edgeClients ask at the same time, each one request after another.
	edgeClients = 32
	// edgeTurns are had by each of the two proxies, and each lasts edgeTurn.
	edgeTurns = 8
	edgeTurn  = 2 * time.Second
	// edgePause is between the requests of a client where there are to be no more than 2,000 a second.
	edgePause = 16 * time.Millisecond
	// edgeHost is whom they ask for.
	edgeHost = "h0.example.com"
	// backendAddress is where the backend is, as the proxies see it: their addresses differ in the last figure.
	backendAddress = "192.168.79.1"
)

// edgeStep measures the edge process: its memory, and what a request costs beside nginx.
func (b *bench) edgeStep(ctx context.Context) (err error) {
	chain, key, err := certificateFor(edgeHost)
	if err != nil {
		return err
	}
	if err := bridge(ctx); err != nil {
		return err
	}
	l, err := net.Listen("tcp", net.JoinHostPort(backendAddress, "0"))
	if err != nil {
		return fmt.Errorf("serve behind the edge: %w", err)
	}
	g := task.NewGroup(ctx)
	g.Go("backend", func(ctx context.Context) error { return plainAnswers(ctx, l) })
	defer func() {
		g.Cancel(context.Canceled)
		err = errors.Join(err, g.Wait())
	}()
	ours, err := b.startEdge(ctx, l.Addr().String(), &route.Certificate{Chain: chain, Key: key})
	if err != nil {
		return err
	}
	defer ours.end()
	if err := task.Sleep(ctx, 12*time.Second); err != nil { // what it needed for its start and the table goes back meanwhile
		return err
	}
	used, err := footprintOf(ours.pid)
	if err := b.set(edgeMemory, mib(used.rss), err); err != nil {
		return err
	}
	theirs, err := b.startNginx(ctx, l.Addr().String(), chain, key)
	if err != nil {
		return err
	}
	defer theirs.end()
	turns := func(ask asking) (a, n tally, err error) {
		for range edgeTurns {
			for p, t := range map[*proxy]*tally{ours: &a, theirs: &n} {
				if err := t.turn(ctx, p, ask); err != nil {
					return a, n, err
				}
			}
		}
		return a, n, nil
	}
	a, n, err := turns(askPlain(edgePause))
	if err != nil {
		return err
	}
	err = errors.Join(b.set(edgeCalm, a.slow()*1e6, nil), b.set(edgeCalmNginx, n.slow()*1e6, nil), b.set(edgeCalmOf, a.slow()/n.slow(), nil))
	for _, one := range []struct {
		ask                             asking
		cost, costNginx, of, slow, rate measure
	}{
		{askPlain(0), edgeCost, edgeCostNginx, edgeCostOf, edgeSlow, edgeRate},
		{askSecure, edgeCost2, edgeCost2Nginx, edgeCost2Of, edgeSlow2, edgeRate2},
	} {
		if err != nil {
			return err
		}
		if a, n, err = turns(one.ask); err != nil {
			return err
		}
		err = errors.Join(b.set(one.cost, a.cost(), nil), b.set(one.costNginx, n.cost(), nil), b.set(one.of, a.cost()/n.cost(), nil),
			b.set(one.slow, a.slow()/n.slow(), nil), b.set(one.rate, a.rate()/n.rate(), nil))
	}
	return err
}

// asking asks the proxy at an address for so long, and returns how long each request took.
type asking func(ctx context.Context, at string, long time.Duration) ([]time.Duration, error)

// proxy is a running one.
type proxy struct {
	pid  int
	at   string // its address
	stop func()
}

func (p *proxy) end() { p.stop() }

// tally is what one proxy has done in its turns.
type tally struct {
	cpu  time.Duration
	took []time.Duration
	p99  []float64 // of each turn, in seconds
}

// turn asks a proxy for [edgeTurn].
func (t *tally) turn(ctx context.Context, p *proxy, ask asking) error {
	before, err := familyTime(p.pid)
	if err != nil {
		return err
	}
	took, err := ask(ctx, p.at, edgeTurn)
	if err != nil {
		return fmt.Errorf("ask %s: %w", p.at, err)
	}
	after, err := familyTime(p.pid)
	if err != nil {
		return err
	}
	t.cpu += after - before
	slices.Sort(took)
	t.took, t.p99 = append(t.took, took...), append(t.p99, took[len(took)*99/100].Seconds())
	return nil
}

// cost is the processor time of one request, in microseconds.
func (t *tally) cost() float64 { return float64(t.cpu) / float64(len(t.took)) / 1e3 }

// slow is how long the slowest hundredth of the requests takes, in seconds: that of the turn in the middle.
func (t *tally) slow() float64 { return median(t.p99) }

// rate is how many requests it takes.
func (t *tally) rate() float64 { return float64(len(t.took)) }

// familyTime is the processor time of a process and of those that it has started.
func familyTime(pid int) (time.Duration, error) {
	all, err := cpuTime(pid)
	if err != nil {
		return 0, err
	}
	data, err := os.ReadFile(procFile(pid, filepath.Join("task", strconv.Itoa(pid), "children")))
	if err != nil {
		return 0, fmt.Errorf("find the children of process %d: %w", pid, err)
	}
	for _, word := range strings.Fields(string(data)) {
		child, err := strconv.Atoi(word)
		if err != nil {
			return 0, fmt.Errorf("find the children of process %d: %w", pid, err)
		}
		one, err := cpuTime(child)
		if err != nil {
			return 0, err
		}
		all += one
	}
	return all, nil
}

// bridge makes the network between the proxies, which are in namespaces of their own, and clients and backend.
func bridge(ctx context.Context) error {
	return ip(ctx, "link add proxies type bridge", "link set proxies up", "addr add "+backendAddress+"/24 dev proxies")
}

// ip runs the program of that name for each of some lines.
func ip(ctx context.Context, lines ...string) error {
	for _, line := range lines {
		if out, err := exec.CommandContext(ctx, "ip", strings.Fields(line)...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w\n%s", line, err, out)
		}
	}
	return nil
}

// startApart starts a proxy in a network namespace of its own, with an address on the bridge.
func startApart(ctx context.Context, cmd *exec.Cmd, number int) (*proxy, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	link, pid := fmt.Sprintf("proxy%d", number), cmd.Process.Pid
	p := &proxy{pid: pid, at: fmt.Sprintf("192.168.79.%d", number), stop: func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		_ = cmd.Wait()                          // by the signal
	}}
	err := ip(ctx, fmt.Sprintf("link add %s type veth peer name eth0 netns %d", link, pid), "link set "+link+" master proxies", "link set "+link+" up")
	for _, line := range []string{"link set lo up", "addr add " + p.at + "/24 dev eth0", "link set eth0 up"} {
		if err == nil {
			var out []byte
			if out, err = exec.CommandContext(ctx, "nsenter", append([]string{"-t", strconv.Itoa(pid), "-n", "ip"}, strings.Fields(line)...)...).CombinedOutput(); err != nil {
				err = fmt.Errorf("ip %s in the namespace of %s: %w\n%s", line, cmd.Path, err, out)
			}
		}
	}
	if err != nil {
		p.stop()
		return nil, err
	}
	return p, nil
}

// startEdge starts an edge as a node does, with many hosts before one backend.
func (b *bench) startEdge(ctx context.Context, backend string, cert *route.Certificate) (_ *proxy, err error) {
	socket := filepath.Join(b.dir, "edge.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("make the socket of the edge: %w", err)
	}
	defer l.Close()
	l.SetUnlinkOnClose(false)
	file, err := l.File()
	if err != nil {
		return nil, fmt.Errorf("hand over the socket of the edge: %w", err)
	}
	defer file.Close()
	cmd := exec.CommandContext(ctx, b.bin, "edge")
	cmd.ExtraFiles, cmd.Env, cmd.Stderr = []*os.File{file}, append(os.Environ(), edge.SocketEnv+"=3"), os.Stderr
	p, err := startApart(ctx, cmd, 2)
	if err != nil {
		return nil, err
	}
	stop := p.stop
	defer func() {
		if err != nil {
			p.stop()
		}
	}()
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return nil, fmt.Errorf("feed the edge: %w", err)
	}
	c := edge.NewControl(conn)
	p.stop = func() {
		_ = c.Close()
		_ = cmd.Process.Kill() // it has nothing to finish
		stop()
	}
	change := route.Change{Whole: true, Sites: map[string]*route.Site{}, Upstreams: map[string]*route.Upstream{}, Certificates: map[string]*route.Certificate{"cert": cert}}
	for i := range edgeHosts {
		name := fmt.Sprintf("h%d.example.com", i)
		change.Sites[name] = &route.Site{Key: name, Rules: []route.Rule{{Host: name, Type: route.Prefix, Upstream: name}}}
		change.Upstreams[name] = &route.Upstream{Endpoints: []string{backend, "127.0.0.1:9"}}
	}
	change.Sites[edgeHost].TLS, change.Sites[edgeHost].Options = []route.TLS{{Hosts: []string{edgeHost}, Certificate: "cert"}}, &route.Options{PlainToo: true}
	change.Upstreams[edgeHost] = &route.Upstream{Endpoints: []string{backend}}
	if err := c.Send(edge.Order{Generation: 1, Ports: &edge.Ports{HTTP: 80, HTTPS: 443}, Change: change}); err != nil {
		return nil, err
	}
	for served, applied := 0, false; served < 2 || !applied; {
		var r edge.Report
		if err := c.Receive(&r); err != nil {
			return nil, fmt.Errorf("listen to the edge: %w", err)
		}
		applied = applied || r.Applied != 0
		if r.Port != nil && r.Port.Error == "" {
			served++
		}
	}
	return p, nil
}

// startNginx starts nginx before the same backend, with as many workers as there are processors.
func (b *bench) startNginx(ctx context.Context, backend string, chain, key []byte) (*proxy, error) {
	dir := filepath.Join(b.dir, "nginx")
	conf := nginx.Conf(dir, backend, fmt.Sprintf(`listen 80; listen 443 ssl http2; server_name %[2]s; ssl_certificate %[1]s/chain.pem; ssl_certificate_key %[1]s/key.pem;`, dir, edgeHost))
	err := os.Mkdir(dir, 0o700)
	for name, text := range map[string][]byte{"nginx.conf": []byte(conf), "chain.pem": chain, "key.pem": key} {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
	if err != nil {
		return nil, fmt.Errorf("configure nginx: %w", err)
	}
	p, err := startApart(ctx, exec.CommandContext(ctx, "nginx", "-p", dir, "-c", filepath.Join(dir, "nginx.conf")), 3)
	if err != nil {
		return nil, err
	}
	wait := task.Backoff{Initial: 10 * time.Millisecond, Max: 100 * time.Millisecond} // nobody tells when it listens
	bounded, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		c, err := net.Dial("tcp", net.JoinHostPort(p.at, "443"))
		if err == nil {
			return p, c.Close()
		}
		if task.Sleep(bounded, wait.Next()) != nil {
			p.stop()
			return nil, fmt.Errorf("wait for nginx: %w", err)
		}
	}
}

// certificateFor makes a certificate for a host.
func certificateFor(host string) (chain, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make a key: %w", err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: host}, DNSNames: []string{host}, NotAfter: time.Now().Add(24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		return nil, nil, fmt.Errorf("make a certificate: %w", err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, nil, fmt.Errorf("write a key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}), nil
}

// allAnswered ends the answer of the backend.
const allAnswered = "that is all\n"

// plainAnswers answers each request with the same few words, at the least cost, until ctx ends.
func plainAnswers(ctx context.Context, l net.Listener) error {
	text := fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%s", len(allAnswered), allAnswered)
	g := task.NewGroup(ctx)
	stop := context.AfterFunc(g.Context(), func() { l.Close() })
	defer stop()
	for {
		c, err := l.Accept()
		if err != nil {
			return g.Wait()
		}
		g.Go("connection", func(ctx context.Context) error {
			stop := context.AfterFunc(ctx, func() { c.Close() })
			defer stop()
			defer c.Close()
			buf, n := make([]byte, 8<<10), 0
			for {
				got, err := c.Read(buf[n:])
				if n += got; err != nil {
					return nil // the proxy has closed it
				}
				if bytes.HasSuffix(buf[:n], []byte("\r\n\r\n")) {
					n = 0
					if _, err := c.Write(text); err != nil {
						return nil
					}
				}
			}
		})
	}
}

// together has all clients ask for so long, with a rest after each answer, and returns how long each request took.
func together(long time.Duration, client func(number int) (ask func() error, end func(), err error), rest func() error) ([]time.Duration, error) {
	var (
		wg   sync.WaitGroup
		all  [edgeClients][]time.Duration
		errs [edgeClients]error
	)
	end := time.Now().Add(long)
	for i := range edgeClients {
		wg.Go(func() {
			ask, leave, err := client(i)
			if err != nil {
				errs[i] = err
				return
			}
			defer leave()
			for began := time.Now(); began.Before(end) && errs[i] == nil; began = time.Now() {
				if errs[i] = ask(); errs[i] == nil {
					all[i] = append(all[i], time.Since(began))
					errs[i] = rest()
				}
			}
		})
	}
	wg.Wait()
	return slices.Concat(all[:]...), errors.Join(errs[:]...)
}

// askPlain asks by HTTP/1.1, each client over a connection that it keeps, with a pause after each answer.
func askPlain(pause time.Duration) asking {
	request := []byte("GET /some/path?with=query HTTP/1.1\r\nHost: " + edgeHost + "\r\nUser-Agent: bench\r\nAccept: */*\r\n\r\n")
	return func(ctx context.Context, at string, long time.Duration) ([]time.Duration, error) {
		return together(long, func(int) (func() error, func(), error) {
			c, err := net.Dial("tcp", net.JoinHostPort(at, "80"))
			if err != nil {
				return nil, nil, err
			}
			buf := make([]byte, 8<<10)
			return func() error {
				if _, err := c.Write(request); err != nil {
					return err
				}
				for n := 0; !bytes.HasSuffix(buf[:n], []byte(allAnswered)); {
					got, err := c.Read(buf[n:])
					if n += got; err != nil {
						return fmt.Errorf("got %q: %w", buf[:n], err)
					}
				}
				return nil
			}, func() { c.Close() }, nil
		}, func() error {
			if pause == 0 {
				return nil
			}
			return task.Sleep(ctx, pause)
		})
	}
}

// askSecure asks by HTTP/2 over TLS, so many clients over one connection.
func askSecure(ctx context.Context, at string, long time.Duration) ([]time.Duration, error) {
	const sharing = 8
	var conns [edgeClients / sharing]*http.Client
	for i := range conns {
		t := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, net.JoinHostPort(at, "443"))
		}}
		defer t.CloseIdleConnections()
		conns[i] = &http.Client{Transport: t}
	}
	return together(long, func(number int) (func() error, func(), error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+edgeHost+"/some/path?with=query", nil)
		return func() error {
			res, err := conns[number%len(conns)].Do(r)
			if err != nil {
				return err
			}
			defer res.Body.Close()
			if text, err := io.ReadAll(res.Body); err != nil || string(text) != allAnswered || res.ProtoMajor != 2 {
				return fmt.Errorf("got %q by %s: %w", text, res.Proto, err)
			}
			return nil
		}, func() {}, err
	}, func() error { return nil })
}
