package kubelet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/kubelet/container"
	"github.com/kemudi/kemudi/internal/kubelet/image"
	"github.com/kemudi/kemudi/internal/kubelet/numa"
	"github.com/kemudi/kemudi/internal/kubelet/pressure"
	"github.com/kemudi/kemudi/internal/obs/tracing"
)

// Connection is a new sandbox in the pod network.
type Connection = container.Connection

// Network is what the node's network is asked to do for pods. What is nil is not done.
type Network struct {
	// Connected is told of a pod's new sandbox before anybody else is. What it cannot do
	// fails the sandbox.
	Connected func(context.Context, Connection) error
	// Drained returns when nothing new is sent to a pod that is being deleted. If ctx ends
	// before, the error says what is not known.
	Drained func(ctx context.Context, pod *v1.Pod) error
}

// Dirs are where an agent has what belongs to pods.
type Dirs struct {
	// RootDir holds volumes and other files of pods. Default /var/lib/kemudi/kubelet.
	RootDir string
	// ToldRootDir is the same directory as plugins know it, in paths that they are told. Default RootDir.
	ToldRootDir string
	// PodLogsDir holds the logs of containers. Default [DefaultPodLogsDir].
	PodLogsDir string
}

// Confinement says what pods are kept within.
type Confinement struct {
	// CgroupParent is the cgroup that pods live in. Default /kemudi.
	CgroupParent string
	// SandboxSeccomp is the file of the seccomp profile that sandboxes get. Default:
	// the profile that the runtime has for all.
	SandboxSeccomp string
}

// Options of an agent. NodeName, Transport, Runtime and Images are required;
// the zero value of the others works.
type Options struct {
	NodeName  string
	Transport client.Transport
	Runtime   runtimeapi.RuntimeServiceClient
	Images    runtimeapi.ImageServiceClient

	// Events receives what people should know. Default: nobody.
	Events client.EventSink

	// Simulated says that there is no machine: no files, mounts, cgroups or
	// sockets are touched, and Capacity must be given.
	Simulated bool
	// Capacity is what the node has; entries override what the machine has.
	Capacity v1.ResourceList
	Settings Settings

	// NodeIPs are the node's addresses, the primary one first. Required unless Simulated.
	NodeIPs []string
	// ByHand says that people make the Node object; the agent waits for it.
	ByHand bool
	// Closed has the node register as one that takes no pods until somebody uncordons it.
	Closed bool
	// Labels and Taints of the node when it registers.
	Labels map[string]string
	Taints []v1.Taint
	// Port is where the agent's API is served, for daemonEndpoints. Default [DefaultPort].
	Port int

	Dirs
	Network Network
	Confinement
	// ClusterDNS are the addresses of the cluster's DNS, ClusterDomain its zone.
	// Default cluster.local.
	ClusterDNS    []string
	ClusterDomain string
	// ResolvConf is the file of the machine's own resolver. Default [DefaultResolvConf].
	ResolvConf string

	// ImageConfig says how images are pulled and when they are removed.
	ImageConfig image.Config

	// Version is reported in the node's status, with a leading "v".
	Version string

	Log     *slog.Logger      // default slog.Default()
	Tracing *tracing.Provider // makes spans of what the agent does; nil: there are none

	fake fakes // of a simulated node
}

// fakes are what a simulated node has in place of a machine.
type fakes struct {
	gauges  pressure.Gauges // nil: there is no disk
	plugins string          // root directory of plugins; empty: there are none
	machine *numa.Machine   // nil: nothing is known of its processors
}

// What an agent takes of the settings that people have flags for.
const (
	DefaultPort       = 10250
	DefaultPodLogsDir = "/var/log/pods"
	DefaultResolvConf = "/etc/resolv.conf"
)

// LogLinksDir has a link to the log of each container, wherever the logs are: it is where programs that gather logs look.
const LogLinksDir = "/var/log/containers"

func (o Options) withDefaults() (_ Options, err error) {
	if o.NodeName == "" || o.Transport == nil || o.Runtime == nil || o.Images == nil {
		return o, errors.New("kubelet: node name, transport, runtime and images must be given")
	}
	if o.Simulated && len(o.Capacity) == 0 {
		return o, errors.New("kubelet: a simulated node must be given its capacity")
	}
	if len(o.NodeIPs) == 0 {
		if !o.Simulated {
			return o, errors.New("kubelet: node addresses must be given")
		}
		o.NodeIPs = []string{"192.0.2.1"}
	}
	if err := o.ImageConfig.Check(); err != nil {
		return o, fmt.Errorf("kubelet: %w", err)
	}
	if o.Events == nil {
		o.Events = client.NoEvents
	}
	if o.Settings, err = o.Settings.withDefaults(); err != nil {
		return o, err
	}
	if o.Port == 0 {
		o.Port = DefaultPort
	}
	for s, value := range map[*string]string{
		&o.RootDir: "/var/lib/kemudi/kubelet", &o.PodLogsDir: DefaultPodLogsDir, &o.CgroupParent: "/kemudi",
		&o.ClusterDomain: "cluster.local", &o.ResolvConf: DefaultResolvConf, &o.Version: "v0.0.0",
	} {
		if *s == "" {
			*s = value
		}
	}
	if o.ToldRootDir == "" {
		o.ToldRootDir = o.RootDir
	}
	if !filepath.IsAbs(o.RootDir) || !filepath.IsAbs(o.PodLogsDir) {
		return o, errors.New("kubelet: RootDir and PodLogsDir must be absolute paths")
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return o, nil
}
