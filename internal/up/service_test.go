package up

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestUnitStartsTheServerAsItWasAskedFor(t *testing.T) {
	o := Options{Program: `/opt/my "100%" dir/kemudi`, DataDir: "/var/lib/kemudi", RunDir: "/run/kemudi", is: RoleServer, Args: []string{"--node-labels", `a=$b`}}
	got := unit(o, []string{"PATH=/bin", "KEMUDI_SECURE_PORT=7443", "https_proxy=http://proxy:3128", NotifyEnv + "=3", "KEMUDI_NODE_NAME=n 1", "PASSWORD=x"})
	for _, want := range []string{
		"\nType=notify\n", "\nKillMode=process\n", "\nRestart=on-failure\n", "\nWantedBy=multi-user.target\n",
		"\n" + `ExecStart="/opt/my \"100%%\" dir/kemudi" server --data-dir "/var/lib/kemudi" --run-dir "/run/kemudi" "--node-labels" "a=$$b"` + "\n" +
			`Environment="KEMUDI_NODE_NAME=n 1"` + "\n" + `Environment="KEMUDI_SECURE_PORT=7443"` + "\n" + `Environment="https_proxy=http://proxy:3128"` + "\n" +
			"StandardOutput=append:/var/lib/kemudi/kemudi.log\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("got\n%s\nwant in it\n%s", got, want)
		}
	}
}

func TestUnitOfAnAgent(t *testing.T) {
	got := unit(Options{Program: "/bin/kemudi", DataDir: "/d", RunDir: "/r", is: RoleAgent}, nil)
	if want := "\nExecStart=\"/bin/kemudi\" agent --data-dir \"/d\" --run-dir \"/r\"\n"; !strings.Contains(got, want) {
		t.Errorf("got\n%s\nwant in it\n%s", got, want)
	}
}

// asked is what systemctl was asked for; fail makes a command of it fail.
type asked struct {
	commands []string
	fail     string
}

func (a *asked) ctl(_ context.Context, args ...string) error {
	a.commands = append(a.commands, strings.Join(args, " "))
	if args[0] == a.fail {
		return errors.New("exit status 1")
	}
	return nil
}

func (a *asked) take() []string {
	taken := a.commands
	a.commands = nil
	return taken
}

func TestServiceIsInstalledStartedAndRemoved(t *testing.T) {
	ctx := t.Context()
	var a asked
	s := services{dir: t.TempDir(), ctl: a.ctl}
	o := Options{Program: "/bin/kemudi", DataDir: filepath.Join(t.TempDir(), "data"), RunDir: "/run/kemudi", is: RoleServer}
	other := o
	other.DataDir = filepath.Join(t.TempDir(), "other")

	for range 2 { // again, to change its flags
		if err := s.install(ctx, o); err != nil {
			t.Fatal(err)
		}
		if got, want := a.take(), []string{"daemon-reload", "enable kemudi.service"}; !slices.Equal(got, want) {
			t.Errorf("installed: got %q, want %q", got, want)
		}
	}
	if has, err := s.has(o); err != nil || !has {
		t.Errorf("got %v, %v, want that there is a service", has, err)
	}
	if has, err := s.has(other); err != nil || has {
		t.Errorf("other directories: got %v, %v, want that there is none", has, err)
	}
	if err := s.install(ctx, other); err == nil || !strings.Contains(err.Error(), "is of a server with other directories") {
		t.Errorf("installed over another's: got %v", err)
	}
	if removed, err := s.remove(ctx, other); err != nil || removed {
		t.Errorf("removed another's: got %v, %v", removed, err)
	}

	var out bytes.Buffer
	p := &printer{out: &out, last: time.Now()}
	if err := s.start(ctx, o, p); err != nil || !strings.Contains(out.String(), "the server is ready") {
		t.Errorf("start: got %v, printed %q", err, out.String())
	}
	a.fail = "start"
	a.take()
	if err := os.WriteFile(LogFile(o.DataDir), []byte("level=INFO\nkemudi: port 6443 is taken\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.start(ctx, o, p); err == nil || strings.Contains(err.Error(), "port 6443") {
		t.Errorf("start that fails, and what earlier ones logged: got %v", err)
	}
	if got, want := a.take(), []string{"start kemudi.service", "stop kemudi.service"}; !slices.Equal(got, want) {
		t.Errorf("start that fails: got %q, want %q", got, want)
	}

	if removed, err := s.remove(ctx, o); err != nil || !removed {
		t.Errorf("removed: got %v, %v", removed, err)
	}
	if got, want := a.take(), []string{"disable --now kemudi.service", "daemon-reload"}; !slices.Equal(got, want) {
		t.Errorf("removed: got %q, want %q", got, want)
	}
	if left, err := os.ReadDir(s.dir); err != nil || len(left) > 0 {
		t.Errorf("left: got %v, %v", left, err)
	}
	if err := (services{dir: s.dir}).install(ctx, o); err == nil || !strings.Contains(err.Error(), "systemd does not run on this machine") {
		t.Errorf("without systemd: got %v", err)
	}
}

func TestSystemdIsToldWhenTheServerIsReady(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	t.Setenv(systemdEnv, socket)
	t.Setenv(NotifyEnv, "")
	n, err := NewNotifier()
	if err != nil {
		t.Fatal(err)
	}
	if v, ok := os.LookupEnv(systemdEnv); ok {
		t.Errorf("programs that the server starts are given the socket %s", v)
	}
	n.Done("store", false)
	n.Done("node is ready", true)
	n.Done("node is ready", true) // once is enough
	if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 100)
	k, err := conn.Read(buf)
	if got := string(buf[:k]); err != nil || got != "READY=1" {
		t.Errorf("got %q, %v", got, err)
	}
}
