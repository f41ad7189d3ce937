package dns

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/coredns/caddy"
	"github.com/coredns/caddy/caddyfile"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/plugin/pkg/parse"
	"github.com/coredns/coredns/plugin/pkg/transport"

	"github.com/kemudi/kemudi/internal/corefile"
	"github.com/kemudi/kemudi/internal/task"
)

// Names that a Corefile has for what is elsewhere here.
const (
	corefileDir    = "/etc/coredns"     // the keys of the config map, the Corefile among them
	machineServers = "/etc/resolv.conf" // the machine's servers, or those of the config map kube-dns
)

// config is a Corefile that has been read: what answers, and how that is ended.
type config struct {
	servers map[uint16]*dnsserver.Server       // by the port that the Corefile says
	pages   map[uint16]map[string]http.Handler // of HTTP, by port and path
	guards  []*guard
	targets []netip.AddrPort // that questions are sent on to
	plugins [][4]string      // of blocks that are measured: server, zone, view, name
	stops   []func() error

	// users counts who answers by it. Who ends it, and whoever is the last to leave it
	// then, sees to idle.
	users atomic.Int64
	ended atomic.Bool
	once  sync.Once
	idle  chan struct{}
}

// enter says whether questions may still be answered by it; who may, must leave it.
func (c *config) enter() bool {
	c.users.Add(1)
	if c.ended.Load() {
		c.leave()
		return false
	}
	return true
}

func (c *config) leave() {
	if c.users.Add(-1) == 0 && c.ended.Load() {
		c.once.Do(func() { close(c.idle) })
	}
}

// end lets nobody enter any more; idle is closed when the last has left.
func (c *config) end() {
	c.users.Add(1)
	c.ended.Store(true)
	c.leave()
}

// stop ends what the plugins run. Nobody may be in it.
func (c *config) stop() error {
	var errs []error
	for _, f := range c.stops {
		errs = append(errs, f())
	}
	return errors.Join(errs...)
}

// loading is a Corefile that is being read.
type loading struct {
	*config
	s        *Server
	dir      string // where the keys of the config map lie as files
	settings upstreams
	inst     *caddy.Instance
	phases   []phase // in the order in which they are set up

	shortcuts map[*dnsserver.Config]*shortcut
	measured  []*dnsserver.Config // blocks with the directive prometheus
}

// load reads a Corefile that lies in dir, or would.
func (s *Server) load(text, dir string, settings upstreams) (*config, error) {
	l := &loading{
		config: &config{servers: map[uint16]*dnsserver.Server{}, pages: map[uint16]map[string]http.Handler{}, idle: make(chan struct{})},
		s:      s, dir: dir, settings: settings, shortcuts: map[*dnsserver.Config]*shortcut{},
	}
	if err := task.Contain(func() error { return l.read(text) }); err != nil {
		// The words are those of upstream, where the files lie where people say they do.
		return nil, errors.New(strings.ReplaceAll(err.Error(), dir, corefileDir))
	}
	return l.config, nil
}

func (l *loading) read(text string) error {
	file := filepath.Join(l.dir, corefile.Key)
	text = strings.ReplaceAll(text, corefileDir+"/", l.dir+"/")
	if err := l.checkTexts(file, text); err != nil {
		return err
	}
	blocks, err := caddyfile.Parse(file, strings.NewReader(text), directives)
	if err != nil {
		return err
	}
	if len(blocks) == 0 {
		return errors.New("the Corefile has no server block")
	}
	c, inst := newInstance()
	l.inst = inst
	if blocks, err = c.Context().InspectServerBlocks(file, blocks); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	for i, b := range blocks {
		if err := l.checkBlock(b); err != nil {
			return err
		}
		dnsserver.GetConfig(place{c, file, i, b}.at("")).Root = l.dir
	}
	for _, name := range directives {
		for i, b := range blocks {
			if tokens := b.Tokens[name]; len(tokens) > 0 {
				if err := l.directive(place{c, file, i, b}, name); err != nil {
					l.undo(0)
					return located(err, file, tokens)
				}
			}
		}
	}
	if err := l.makeServers(c); err != nil {
		l.undo(0)
		return err
	}
	l.notePlugins(l.measured)
	return l.start()
}

func (l *loading) makeServers(c *caddy.Controller) error {
	made, err := c.Context().MakeServers()
	if err != nil {
		return err
	}
	for _, m := range made {
		server, ok := m.(*dnsserver.Server)
		if !ok {
			return fmt.Errorf("%T is no DNS server", m)
		}
		_, _, number, err := dnsserver.SplitProtocolHostPort(server.Addr)
		if err != nil {
			return err
		}
		p, err := strconv.ParseUint(number, 10, 16)
		if err != nil {
			return fmt.Errorf("port %s: %w", number, err)
		}
		l.servers[uint16(p)] = server
	}
	return nil
}

// phase is what one directive does at the start and in the end.
type phase struct {
	start, stop []func() error
	early       bool // it runs something before it is started
}

// directive sets up one directive of one block.
func (l *loading) directive(p place, name string) error {
	begun, ended := len(l.inst.OnStartup), len(l.inst.OnShutdown)
	err := l.setup(p, name)
	l.phases = append(l.phases, phase{start: l.inst.OnStartup[begun:], stop: l.inst.OnShutdown[ended:], early: name == "hosts"})
	return err
}

// start begins what the plugins run.
func (l *loading) start() error {
	for n, p := range l.phases {
		for _, f := range p.start {
			if err := f(); err != nil {
				l.undo(n)
				return err
			}
		}
	}
	for _, p := range l.phases {
		l.stops = append(l.stops, p.stop...)
	}
	return nil
}

// undo ends what plugins run of which so many have been started. To the others it is not
// said: some would wait for what they have not begun.
func (l *loading) undo(started int) {
	for n, p := range l.phases {
		if n < started || p.early {
			for _, f := range p.stop {
				_ = f() // nothing of it was used
			}
		}
	}
}

// located adds the line that an error is about, if it does not say it itself.
func located(err error, file string, tokens []caddyfile.Token) error {
	if strings.Contains(err.Error(), file) || len(tokens) == 0 {
		return err
	}
	if tokens[0].File != "" {
		file = tokens[0].File
	}
	return fmt.Errorf("%s:%d - %w", file, tokens[0].Line, err)
}

// checkTexts checks the Corefile, and the keys that it may import, and these each other.
func (l *loading) checkTexts(file, text string) error {
	if err := l.checkText(file, text); err != nil {
		return err
	}
	keys, err := os.ReadDir(l.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, key := range keys {
		path := filepath.Join(l.dir, key.Name())
		if path == file {
			continue
		}
		value, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := l.checkText(path, string(value)); err != nil {
			return err
		}
	}
	return nil
}

// checkText refuses what is read while a Corefile is parsed and not its own: variables of
// the process's environment, and files.
func (l *loading) checkText(file, text string) error {
	d := caddyfile.NewDispenser(file, strings.NewReader(text))
	for imports := false; d.Next(); {
		v := d.Val()
		switch {
		case strings.Contains(v, "{$") || strings.Contains(v, "{%"):
			return d.Errf("%s: there are no environment variables", v)
		case imports && l.outside(v):
			return d.Errf("%s: only keys of the config map can be imported", v)
		}
		imports = v == "import"
	}
	return nil
}

// outside says that a word names a file that is no key of the config map.
func (l *loading) outside(word string) bool {
	return strings.Contains(word, "../") || strings.HasPrefix(word, "/") && !strings.HasPrefix(word, l.dir+"/")
}

// checkBlock refuses what of a block is not to be had here, and finds the keys of the config map.
func (l *loading) checkBlock(b caddyfile.ServerBlock) error {
	for _, key := range b.Keys {
		if tr, _ := parse.Transport(key); tr != transport.DNS {
			return fmt.Errorf("%s: only DNS by UDP and TCP is served", key)
		}
	}
	for name, tokens := range b.Tokens {
		for i, t := range tokens {
			t.Text = strings.ReplaceAll(t.Text, corefileDir+"/", l.dir+"/") // of a key that is imported
			tokens[i] = t
			if l.outside(t.Text) && !(t.Text == machineServers && (name == "forward" || name == "autopath")) {
				return located(fmt.Errorf("%s: it names a file that is no key of the config map", t.Text), filepath.Join(l.dir, corefile.Key), []caddyfile.Token{t})
			}
		}
	}
	return nil
}

// instanceType is a type of servers of caddy's whose instances are known to who makes them:
// CoreDNS' plugins note there what is to be done at the start and in the end. All else of it is
// CoreDNS' own type.
const instanceType = "kemudi"

type instanceKey struct{}

var registerType = sync.OnceFunc(func() {
	caddy.RegisterServerType(instanceType, caddy.ServerType{NewContext: func(inst *caddy.Instance) caddy.Context {
		inst.Storage[instanceKey{}] = inst
		return caddy.NewTestController("dns", "").Context()
	}})
})

// newInstance makes what plugins are set up in. It opens no sockets, and is in no list of
// the process.
func newInstance() (*caddy.Controller, *caddy.Instance) {
	registerType()
	c := caddy.NewTestController(instanceType, "")
	inst, ok := c.Get(instanceKey{}).(*caddy.Instance)
	if !ok {
		panic(fmt.Sprintf("caddy made no instance of type %q", instanceType))
	}
	return c, inst
}

// place is a block of a Corefile.
type place struct {
	c     *caddy.Controller // of the instance
	file  string
	index int
	block caddyfile.ServerBlock
}

// at returns the controller for a directive of the block.
func (p place) at(directive string) *caddy.Controller {
	c := *p.c
	c.Key, c.ServerBlockIndex, c.ServerBlockKeys = p.block.Keys[0], p.index, p.block.Keys
	c.Dispenser = caddyfile.NewDispenserTokens(p.file, p.block.Tokens[directive])
	return &c
}
