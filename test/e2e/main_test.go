package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"

	"github.com/kemudi/kemudi/internal/ociimage"
	"github.com/kemudi/kemudi/test/image"
)

// janitorEnv makes this program the process that cleans up behind a test.
const janitorEnv = "KEMUDI_E2E_JANITOR"

func TestMain(m *testing.M) {
	if os.Getenv(janitorEnv) != "" {
		if err := janitor(os.Stdin); err != nil {
			fmt.Fprintln(os.Stderr, "e2e: clean up:", err)
			os.Exit(1)
		}
		return
	}
	if dir := os.Getenv(etcdEnv); dir != "" {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		if err := runEtcd(ctx, dir); err != nil {
			fmt.Fprintln(os.Stderr, "e2e: etcd:", err)
			os.Exit(1)
		}
		return
	}
	// The tests mostly wait; their number is not bound to that of processors.
	if err := flag.Set("test.parallel", "12"); err != nil {
		panic(err)
	}
	// How full the disk and the memory of the machine are does not matter here.
	for name, value := range map[string]string{"KEMUDI_EVICTION_HARD": "memory.available<1Mi", "KEMUDI_IMAGE_GC_HIGH_THRESHOLD": "100"} {
		if _, set := os.LookupEnv(name); !set {
			if err := os.Setenv(name, value); err != nil {
				panic(err)
			}
		}
	}
	flag.Parse()
	code := m.Run()
	if err := built.end(); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		code = 1
	}
	os.Exit(code)
}

// build is what all tests use: the program, the images, and who cleans up.
type build struct {
	once    sync.Once
	err     error
	dir     string // scratch, removed by the janitor
	bin     string // the program
	images  []string
	janitor *exec.Cmd
	orders  struct {
		sync.Mutex
		io.WriteCloser
	}
}

var built build

// need builds everything on first use, or skips the test.
func need(t *testing.T) *build {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("real containers need root")
	}
	embedded, err := filepath.Glob("../../internal/container/embedded/" + runtime.GOARCH + "/*.zst")
	if err != nil || len(embedded) == 0 {
		t.Skip("the programs that travel inside kemudi are not built: run make runtime")
	}
	built.once.Do(func() { built.err = built.make() })
	if errors.Is(built.err, image.ErrNoBusybox) {
		t.Skip(built.err)
	} else if built.err != nil {
		t.Fatal(built.err)
	}
	return &built
}

func (b *build) make() error {
	var err error
	if b.dir, err = os.MkdirTemp("", "kemudi-e2e"); err != nil {
		return err
	}
	if err := b.startJanitor(); err != nil {
		return err
	}
	gocmd := os.Getenv("GO")
	if gocmd == "" {
		gocmd = "go"
	}
	if b.bin = os.Getenv("KEMUDI_BIN"); b.bin == "" {
		b.bin = filepath.Join(b.dir, "kemudi")
		// The version that make build stamps in; kubectl is lost without one.
		const stamp = "-X k8s.io/component-base/version.gitVersion=v1.37.2"
		cmd := exec.Command(gocmd, "build", "-trimpath", "-ldflags", stamp, "-o", b.bin, "github.com/kemudi/kemudi/cmd/kemudi")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build kemudi: %w\n%s", err, out)
		}
	}
	agent := filepath.Join(b.dir, "agent")
	if err := image.BuildAgent(context.Background(), gocmd, agent); err != nil {
		return err
	}
	images, err := image.All(agent)
	if err != nil {
		return err
	}
	b.images, err = image.Write(filepath.Join(b.dir, "images"), append(images, documentImages(images)...))
	return err
}

// documentImages gives our web server the names that the documents' examples
// use, so that they can be applied as they are: it serves on the port that they
// say, and tells its version.
func documentImages(images []ociimage.Image) (list []ociimage.Image) {
	for _, im := range images {
		if im.Names[0] != "kemudi.local/web:1" {
			continue
		}
		for _, tag := range []string{"1.7.9", "1.9.1", "1.16.1"} {
			im.Names, im.Cmd, im.Ports = []string{"docker.io/library/nginx:" + tag}, []string{"--port=80", "--version=" + tag}, []string{"80/tcp"}
			list = append(list, im)
		}
	}
	return list
}

// startJanitor starts the process that outlives this one, however it ends.
func (b *build) startJanitor() error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	b.janitor = exec.Command(exe)
	b.janitor.Env = append(os.Environ(), janitorEnv+"=1")
	b.janitor.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	b.janitor.Stderr = os.Stderr
	if b.orders.WriteCloser, err = b.janitor.StdinPipe(); err != nil {
		return err
	}
	if err := b.janitor.Start(); err != nil {
		return err
	}
	return b.order(order{Remove: b.dir})
}

// end lets the janitor finish.
func (b *build) end() error {
	if b.janitor == nil {
		return nil
	}
	b.orders.Close()
	return b.janitor.Wait()
}

// order tells the janitor what there is to clean up, or that it is done.
type order struct {
	Machine *place `json:"machine,omitempty"` // to wipe
	Done    string `json:"done,omitempty"`    // run directory of a machine that is clean
	Remove  string `json:"remove,omitempty"`  // directory to remove last
}

func (b *build) order(o order) error {
	b.orders.Lock()
	defer b.orders.Unlock()
	return json.NewEncoder(b.orders.WriteCloser).Encode(o)
}

// janitor takes orders until nobody can give any more, and then cleans up what
// is not done.
func janitor(orders io.Reader) error {
	// Whoever read standard error may have gone with the test.
	signal.Ignore(syscall.SIGPIPE)
	places, remove := map[string]*place{}, []string{}
	for d := json.NewDecoder(orders); ; {
		var o order
		if err := d.Decode(&o); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			break
		} else if err != nil {
			return err
		}
		switch {
		case o.Machine != nil:
			places[o.Machine.RunDir] = o.Machine
		case o.Done != "":
			delete(places, o.Done)
		default:
			remove = append(remove, o.Remove)
		}
	}
	var errs []error
	for _, p := range places {
		fmt.Fprintln(os.Stderr, "e2e: the test left", p.RunDir, "behind; removing it")
		errs = append(errs, p.wipe(context.Background()))
	}
	for _, dir := range remove {
		errs = append(errs, os.RemoveAll(dir))
	}
	return errors.Join(errs...)
}
