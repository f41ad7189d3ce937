package image_test

import (
	"bufio"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kemudi/kemudi/internal/container"
	"github.com/kemudi/kemudi/test/image"
	"github.com/kemudi/kemudi/test/wait"
)

// TestImagesRun imports every image into a real runtime and runs it.
func TestImagesRun(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: containers, mounts and cgroups")
	}
	if !container.Built() {
		t.Skip("needs the embedded programs: run build/runtime/build.sh first")
	}
	r := startRuntime(t)
	for _, path := range r.buildImages() {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Images().Import(t.Context(), f); err != nil {
			t.Fatalf("import %s: %v", path, err)
		}
		f.Close()
	}
	list, err := r.Images().List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, i := range list {
		names = append(names, i.Names...)
	}
	want := []string{"kemudi.local/agnhost:1", "kemudi.local/agnhost:2", "kemudi.local/busybox:1", container.PauseImage, "kemudi.local/web:1", "kemudi.local/web:2"}
	if !slices.Equal(names, want) {
		t.Errorf("images: got %v, want %v", names, want)
	}
	r.runPod()
	for _, c := range []struct {
		name, image string
		command     []string
		args        []string
		code        int32
		logs        string
	}{
		{"entrypoint", "agnhost:1", nil, []string{"entrypoint-tester", "a"}, 0, "[/agnhost entrypoint-tester a]"},
		{"second-binary", "agnhost:2", []string{"/agnhost-2", "entrypoint-tester"}, nil, 0, "[/agnhost-2 entrypoint-tester]"},
		{"mounttest", "agnhost:1", nil, []string{"mounttest", "--fs_type=/dev", "--file_perm=/tmp"}, 0, "mount type of \"/dev\": tmpfs\nperms of file \"/tmp\": -rwxrwxrwx"},
		{"shell", "agnhost:1", []string{"sh", "-c"}, []string{"test -L /bin/ls && ls -d /uploads /localhost.crt && curl -s http://127.0.0.1:1; echo $?"}, 0, "/localhost.crt\n/uploads\n7"},
		{"busybox", "busybox:1", []string{"sh", "-c", "id -un && exit 3"}, nil, 3, "root"},
		{"version", "web:2", []string{"sh", "-c", "id -un; /web help | head -1"}, nil, 0, "nobody\nUsage: agnhost COMMAND [flags]"},
	} {
		code, logs := r.runToEnd(c.name, &runtimeapi.ContainerConfig{Image: &runtimeapi.ImageSpec{Image: "kemudi.local/" + c.image}, Command: c.command, Args: c.args})
		if code != c.code || logs != c.logs {
			t.Errorf("%s: got exit code %d and\n%s\nwant %d and\n%s", c.name, code, logs, c.code, c.logs)
		}
	}
	r.webDrains()
}

// liveRuntime is an embedded runtime with one pod.
type liveRuntime struct {
	*container.Embedded
	*testing.T
	dir     string
	config  *runtimeapi.PodSandboxConfig
	sandbox string
}

func startRuntime(t *testing.T) *liveRuntime {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "kit")
	if err != nil {
		t.Fatal(err)
	}
	o := container.Options{
		DataDir: filepath.Join(dir, "data"), RunDir: filepath.Join(dir, "run"), CgroupParent: "/" + filepath.Base(dir),
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	e, err := container.New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context())) // outlives the cleanups that use it
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	r := &liveRuntime{Embedded: e, T: t, dir: dir}
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
		if _, err := container.Reset(context.Background(), o); err != nil {
			t.Errorf("reset: %v", err)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	select {
	case <-e.Ready():
	case err := <-done:
		done <- err
		t.Fatal(err)
	}
	return r
}

func (r *liveRuntime) buildImages() []string {
	r.Helper()
	agent := filepath.Join(r.dir, "agent")
	if err := image.BuildAgent(r.Context(), "go", agent); err != nil {
		r.Fatal(err)
	}
	images, err := image.All(agent)
	if errors.Is(err, image.ErrNoBusybox) {
		r.Skip(err)
	} else if err != nil {
		r.Fatal(err)
	}
	paths, err := image.Write(filepath.Join(r.dir, "images"), images)
	if err != nil {
		r.Fatal(err)
	}
	return paths
}

func (r *liveRuntime) runPod() {
	r.Helper()
	r.config = &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "p", Namespace: "default", Uid: "p"}, LogDirectory: r.dir,
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			CgroupParent:    "/" + filepath.Base(r.dir) + "/p",
			SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{NamespaceOptions: &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE}},
		},
	}
	res, err := r.CRI().Runtime.RunPodSandbox(r.Context(), &runtimeapi.RunPodSandboxRequest{Config: r.config})
	if err != nil {
		r.Fatal(err)
	}
	r.sandbox = res.PodSandboxId
	r.Cleanup(func() {
		if _, err := r.CRI().Runtime.RemovePodSandbox(context.Background(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: r.sandbox}); err != nil {
			r.Errorf("remove pod: %v", err)
		}
	})
}

func (r *liveRuntime) start(name string, c *runtimeapi.ContainerConfig) (id string) {
	r.Helper()
	c.Metadata, c.LogPath = &runtimeapi.ContainerMetadata{Name: name}, name+".log"
	c.Linux = &runtimeapi.LinuxContainerConfig{SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
		NamespaceOptions: &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE, Pid: runtimeapi.NamespaceMode_CONTAINER},
	}}
	res, err := r.CRI().Runtime.CreateContainer(r.Context(), &runtimeapi.CreateContainerRequest{PodSandboxId: r.sandbox, SandboxConfig: r.config, Config: c})
	if err != nil {
		r.Fatalf("%s: %v", name, err)
	}
	if _, err := r.CRI().Runtime.StartContainer(r.Context(), &runtimeapi.StartContainerRequest{ContainerId: res.ContainerId}); err != nil {
		r.Fatalf("%s: %v", name, err)
	}
	return res.ContainerId
}

// runToEnd runs a container until it ends and returns its exit code and log.
func (r *liveRuntime) runToEnd(name string, c *runtimeapi.ContainerConfig) (code int32, logs string) {
	r.Helper()
	id := r.start(name, c)
	r.await(name+" ends", func() bool {
		res, err := r.CRI().Runtime.ContainerStatus(r.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: id})
		if err != nil {
			r.Fatal(err)
		}
		code = res.Status.ExitCode
		return res.Status.State == runtimeapi.ContainerState_CONTAINER_EXITED
	})
	return code, r.log(name)
}

// await looks until what is so.
func (r *liveRuntime) await(what string, so func() bool) {
	r.Helper()
	tick, timeout := time.NewTicker(10*time.Millisecond), time.After(wait.Patience)
	defer tick.Stop()
	for !so() {
		select {
		case <-tick.C:
		case <-timeout:
			name, _, _ := strings.Cut(what, " ")
			r.Fatalf("not after %s: %s; its log:\n%s", wait.Patience, what, r.log(name))
		}
	}
}

// log returns a container's output without the stamps of the log format.
func (r *liveRuntime) log(name string) string {
	f, err := os.Open(filepath.Join(r.dir, name+".log"))
	if err != nil {
		return ""
	}
	defer f.Close()
	var lines []string
	for s := bufio.NewScanner(f); s.Scan(); {
		if parts := strings.SplitN(s.Text(), " ", 4); len(parts) == 4 {
			lines = append(lines, parts[3])
		}
	}
	return strings.Join(lines, "\n")
}

// webDrains stops a web container and expects it to end by itself, in order.
func (r *liveRuntime) webDrains() {
	r.Helper()
	id := r.start("web", &runtimeapi.ContainerConfig{Image: &runtimeapi.ImageSpec{Image: "kemudi.local/web:1"}, Args: []string{"--port=0", "--drain=200ms", "--version=1"}})
	// Before it says so it does not listen to signals either.
	r.await("web serves", func() bool { return strings.Contains(r.log("web"), "web 1: serving on") })
	if _, err := r.CRI().Runtime.StopContainer(r.Context(), &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: 20}); err != nil {
		r.Fatal(err)
	}
	res, err := r.CRI().Runtime.ContainerStatus(r.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: id})
	if err != nil || res.Status.ExitCode != 0 {
		r.Errorf("web after SIGTERM: got %v, %v; want exit code 0; its log:\n%s", res, err, r.log("web"))
	}
}
