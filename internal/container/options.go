package container

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"github.com/containerd/containerd/v2/plugins"
)

// PauseImage is the name of the image that holds a pod's namespaces open. It
// travels inside kemudi and is never pulled.
const PauseImage = "kemudi.local/pause:1"

// Namespace is the containerd namespace of everything that CRI manages.
const Namespace = "k8s.io"

// Options say where the embedded runtime lives. The zero value works and is
// what `kemudi server` uses.
type Options struct {
	// DataDir holds what must survive a reboot: images, snapshots, the
	// unpacked programs. Default /var/lib/kemudi.
	DataDir string

	// RunDir holds sockets, mounts and container state. It is at most 40 bytes
	// long, because socket paths are short. Default /run/kemudi.
	RunDir string

	// CNIConfDir is where the pod network puts its CNI configuration. It is
	// watched: the network becomes ready when a file appears. Default
	// DataDir/cni/net.d.
	CNIConfDir string

	// RegistryConfigDir is a list of directories, separated by colons, with a
	// directory per registry that holds hosts.toml (the certs.d layout).
	// Default /etc/kemudi/certs.d:/etc/containerd/certs.d:/etc/docker/certs.d.
	RegistryConfigDir string

	// Snapshotter is overlayfs or native (plain copies, for file systems that
	// overlayfs cannot stack on). Default overlayfs, or native where the
	// kernel refuses overlayfs on DataDir.
	Snapshotter string

	// Handlers are container runtimes beside runc, by the name that a
	// RuntimeClass gives as its handler. The name runc is taken.
	Handlers Handlers

	// CgroupParent is the cgroup below which all containers run, as the node
	// agent names it in CRI requests; Reset removes it. Default /kemudi.
	CgroupParent string

	// StreamIdle is how long exec, attach and port-forward may be silent. Default 4h.
	StreamIdle time.Duration

	// OwnTemp has every library in this process make its temporary files in
	// RunDir, where the next start and Reset find those of a killed process: it
	// sets TMPDIR. For a process that does little but run this runtime.
	OwnTemp bool

	// Logger receives the runtime's messages. Default slog.Default().
	Logger *slog.Logger

	// LogLevel is the lowest level of containerd's own messages that is
	// passed on; below it they cost nothing. Default slog.LevelWarn.
	LogLevel slog.Leveler
}

// maxRunDir keeps RunDir/s within the 42 bytes that containerd allows a
// directory of shim sockets.
const maxRunDir = 40

// withDefaults completes and checks the options of a runtime that is to run.
func (o Options) withDefaults() (Options, error) {
	o, err := o.complete()
	if err == nil {
		err = CheckRunDir(o.RunDir)
	}
	return o, err
}

// CheckRunDir refuses a run directory in which the runtime's sockets would have
// names that the kernel does not take.
func CheckRunDir(dir string) error {
	if len(dir) > maxRunDir {
		return fmt.Errorf("run directory %s is longer than %d bytes, which sockets in it cannot have: choose a shorter one (--run-dir)", dir, maxRunDir)
	}
	return nil
}

// complete is withDefaults for what no runtime needs to have run with, too: what
// a refused start left behind is to be removed.
func (o Options) complete() (Options, error) {
	setDefault(&o.DataDir, "/var/lib/kemudi")
	setDefault(&o.RunDir, "/run/kemudi")
	setDefault(&o.CNIConfDir, filepath.Join(o.cniDir(), "net.d"))
	setDefault(&o.RegistryConfigDir, "/etc/kemudi/certs.d:/etc/containerd/certs.d:/etc/docker/certs.d")
	setDefault(&o.CgroupParent, "/kemudi")
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.LogLevel == nil {
		o.LogLevel = slog.LevelWarn
	}
	if o.StreamIdle == 0 {
		o.StreamIdle = 4 * time.Hour
	}
	for _, dir := range []*string{&o.DataDir, &o.RunDir, &o.CNIConfDir, &o.CgroupParent} {
		if !filepath.IsAbs(*dir) {
			return o, fmt.Errorf("container runtime: %q is not an absolute path", *dir)
		}
		*dir = filepath.Clean(*dir)
	}
	switch o.Snapshotter {
	case "", snapshotterOverlay, snapshotterNative:
	default:
		return o, fmt.Errorf("container runtime: snapshotter %q is neither overlayfs nor native", o.Snapshotter)
	}
	if _, taken := o.Handlers[handlerRunc]; taken {
		return o, fmt.Errorf("container runtime: handler %s cannot be replaced", handlerRunc)
	}
	switch {
	case o.RunDir == "/" || o.DataDir == "/" || within(o.RunDir, o.DataDir) || within(o.DataDir, o.RunDir):
		return o, fmt.Errorf("container runtime: data directory %s and run directory %s must be apart", o.DataDir, o.RunDir)
	case o.CgroupParent == "/":
		return o, fmt.Errorf("container runtime: the cgroup parent must not be the root")
	}
	return o, nil
}

func setDefault(s *string, value string) {
	if *s == "" {
		*s = value
	}
}

// within reports whether path is dir or below it; both are clean.
func within(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, dir+"/")
}

func (o Options) binDir() string      { return filepath.Join(o.DataDir, "bin") }
func (o Options) shim() string        { return filepath.Join(o.binDir(), "containerd-shim-runc-v2") }
func (o Options) rootDir() string     { return filepath.Join(o.DataDir, "containerd") }
func (o Options) stateDir() string    { return filepath.Join(o.RunDir, "containerd") }
func (o Options) runcRoot() string    { return filepath.Join(o.RunDir, "runc") }
func (o Options) shimSockets() string { return filepath.Join(o.RunDir, "s") }
func (o Options) tempDir() string     { return filepath.Join(o.stateDir(), "tmp") }
func (o Options) cniDir() string      { return filepath.Join(o.DataDir, "cni") }
func (o Options) lockFile() string    { return filepath.Join(o.rootDir(), "kemudi.lock") }

// bundles is where containerd has what a container was started with, by its ID.
func (o Options) bundles() string {
	return filepath.Join(o.stateDir(), string(plugins.RuntimePluginV2)+".task", Namespace)
}

// registriesDir is where containerd finds the settings of each registry it asks.
func (o Options) registriesDir() string { return filepath.Join(o.stateDir(), "registries") }

// NetNSDir is where the network namespaces of pods are mounted, by name.
func (o Options) NetNSDir() string {
	if o, err := o.complete(); err == nil {
		return filepath.Join(o.stateDir(), "io.containerd.grpc.v1.cri/netns")
	}
	return ""
}

// Socket is where the embedded containerd serves its own API and CRI.
func (o Options) Socket() string {
	if o, err := o.complete(); err == nil {
		return filepath.Join(o.RunDir, "containerd.sock")
	}
	return ""
}
