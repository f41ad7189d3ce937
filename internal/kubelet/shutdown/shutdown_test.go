package shutdown

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/godbus/dbus/v5/prop"
	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/kubelet/podstep"
	"github.com/kemudi/kemudi/test/metric"
)

// login stands for systemd and its logind on a bus of the test's own.
type login struct {
	t     *testing.T
	conn  *dbus.Conn
	props *prop.Properties
	conf  string
	locks chan lock
}

// lock keeps the machine from going down until all that hold its held end have closed that.
type lock struct{ end, held *os.File }

// Inhibit answers as systemd-logind does.
func (l *login) Inhibit(what, who, _, mode string) (dbus.UnixFD, *dbus.Error) {
	if what != "shutdown" || who != "kubelet" || mode != "delay" {
		return 0, dbus.MakeFailedError(fmt.Errorf("a lock of %s, %s, %s", what, who, mode))
	}
	r, w, err := os.Pipe()
	if err != nil {
		return 0, dbus.MakeFailedError(err)
	}
	l.t.Cleanup(func() { _ = errors.Join(r.Close(), w.Close()) })
	fd := dbus.UnixFD(w.Fd())
	l.locks <- lock{r, w}
	return fd, nil
}

// KillUnit has logind read its settings.
func (l *login) KillUnit(string, string, int32) *dbus.Error {
	data, err := os.ReadFile(filepath.Join(l.conf, ConfName))
	if err != nil {
		return dbus.MakeFailedError(err)
	}
	var seconds uint64
	if _, err := fmt.Sscanf(string(data[bytes.Index(data, []byte("InhibitDelayMaxSec=")):]), "InhibitDelayMaxSec=%d", &seconds); err != nil {
		return dbus.MakeFailedError(err)
	}
	l.props.SetMust(loginManager, "InhibitDelayMaxUSec", seconds*1000000)
	return nil
}

func newLogin(t *testing.T) (*login, string) {
	t.Helper()
	daemon, err := exec.LookPath("dbus-daemon")
	if err != nil {
		t.Skip("needs dbus-daemon")
	}
	dir := t.TempDir()
	address := "unix:path=" + dir + "/bus"
	conf := `<busconfig><type>session</type><listen>` + address + `</listen><auth>EXTERNAL</auth><policy context="default">` +
		`<allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/></policy></busconfig>`
	if err := os.WriteFile(dir+"/bus.conf", []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, daemon, "--config-file="+dir+"/bus.conf", "--nofork", "--print-address")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // however the test ends
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel(); _ = cmd.Wait() })
	if _, err := out.Read(make([]byte, 1)); err != nil { // it listens
		t.Fatal(err)
	}
	conn, err := dbus.Connect(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	l := &login{t: t, conn: conn, conf: dir + "/conf", locks: make(chan lock, 8)}
	if l.props, err = prop.Export(conn, loginPath, prop.Map{loginManager: {"InhibitDelayMaxUSec": {Value: uint64(5000000), Writable: true}}}); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(conn.Export(l, loginPath, loginManager), conn.Export(l, "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{loginName, "org.freedesktop.systemd1"} {
		if _, err := conn.RequestName(name, 0); err != nil {
			t.Fatal(err)
		}
	}
	return l, address
}

// Proves: KEP-2000
func TestMachineWaitsForItsPods(t *testing.T) {
	l, bus := newLogin(t)
	said := make(chan string, 32)
	ended := map[types.UID]chan struct{}{}
	var pods []*v1.Pod
	for name, priority := range map[string]int32{"web": 0, "vital": 2000001000} {
		pod := &v1.Pod{Spec: v1.PodSpec{Priority: &priority, TerminationGracePeriodSeconds: ptr.To(int64(7))}}
		pod.Name, pod.UID = name, types.UID(name)
		pods = append(pods, pod)
		ended[pod.UID] = make(chan struct{})
	}
	var log bytes.Buffer
	reg := prometheus.NewRegistry()
	w := &Watch{
		Groups: Settings{Period: 20 * time.Second, Critical: 5 * time.Second}.Groups(), Bus: bus, ConfDir: l.conf,
		Pods:  func() []*v1.Pod { return pods },
		Down:  func(down bool) { said <- fmt.Sprint("down ", down) },
		Event: func(_, reason, message string) { said <- reason + ": " + message },
		End: func(uid types.UID, e podstep.Eviction) <-chan struct{} {
			said <- fmt.Sprintf("%s %s %d %s", uid, e.Reason, *e.Grace, e.Message)
			return ended[uid]
		},
		Metrics: NewMetrics(reg), Log: slog.New(slog.NewTextHandler(&log, nil)),
	}
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() { over <- w.Run(ctx) }()
	defer func() { cancel(); <-over }()
	first := <-l.locks
	if v := l.props.GetMust(loginManager, "InhibitDelayMaxUSec"); v != uint64(20000000) {
		t.Errorf("shutdowns can be held up for %v us, want 20 s", v)
	}
	expect := func(want ...string) {
		t.Helper()
		for _, one := range want {
			select {
			case got := <-said:
				if got != one {
					t.Fatalf("got %q, want %q\n%s", got, one, log.String())
				}
			case <-time.After(20 * time.Second):
				t.Fatalf("nothing was said, want %q\n%s", one, log.String())
			}
		}
	}
	signal := func(down bool) {
		t.Helper()
		if err := l.conn.Emit(loginPath, loginManager+".PrepareForShutdown", down); err != nil {
			t.Fatal(err)
		}
	}
	const why = " Pod was terminated in response to imminent node shutdown."
	signal(true)
	expect("down true", "Shutdown: Shutdown manager detected shutdown event", "web Terminated 7"+why)
	if err := first.held.Close(); err != nil { // the watch has its own
		t.Fatal(err)
	}
	close(ended["web"])
	expect("vital Terminated 5" + why)
	close(ended["vital"])
	if n, err := first.end.Read(make([]byte, 1)); n != 0 || err == nil || !strings.Contains(err.Error(), "EOF") {
		t.Errorf("the lock: got %d, %v, want that it is given back", n, err)
	}
	for _, name := range []string{"kubelet_graceful_shutdown_start_time_seconds", "kubelet_graceful_shutdown_end_time_seconds"} {
		if metric.Value(t, reg, name) == 0 {
			t.Errorf("%s: got 0, want when it was", name)
		}
	}
	signal(false) // it was called off
	expect("down false", "Shutdown: Shutdown manager detected shutdown cancellation")
	<-l.locks
	if files, err := Reset(l.conf); err != nil || len(files) != 1 {
		t.Errorf("reset: got %v, %v, want the file of the settings", files, err)
	}
	if files, err := Reset(l.conf); err != nil || len(files) != 0 {
		t.Errorf("reset of nothing: got %v, %v", files, err)
	}
}

func TestAMachineWithoutLogindGoesDownAsItLikes(t *testing.T) {
	var log bytes.Buffer
	w := &Watch{Groups: Settings{Period: time.Second}.Groups(), Bus: "unix:path=/nonexistent/bus", Log: slog.New(slog.NewTextHandler(&log, nil))}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := w.Run(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want that it goes on trying", err)
	}
	if !strings.Contains(log.String(), "the machine's shutdown does not wait for pods") {
		t.Errorf("got the log %q", log.String())
	}
}
