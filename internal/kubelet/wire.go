package kubelet

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/features"
	"github.com/kemudi/kemudi/internal/kubelet/admit"
	"github.com/kemudi/kemudi/internal/kubelet/backoff"
	"github.com/kemudi/kemudi/internal/kubelet/container"
	"github.com/kemudi/kemudi/internal/kubelet/cri"
	"github.com/kemudi/kemudi/internal/kubelet/csi"
	"github.com/kemudi/kemudi/internal/kubelet/device"
	"github.com/kemudi/kemudi/internal/kubelet/disk"
	"github.com/kemudi/kemudi/internal/kubelet/evict"
	"github.com/kemudi/kemudi/internal/kubelet/image"
	"github.com/kemudi/kemudi/internal/kubelet/localvolume"
	"github.com/kemudi/kemudi/internal/kubelet/logs"
	"github.com/kemudi/kemudi/internal/kubelet/manifest"
	"github.com/kemudi/kemudi/internal/kubelet/node"
	"github.com/kemudi/kemudi/internal/kubelet/objects"
	"github.com/kemudi/kemudi/internal/kubelet/plugin"
	"github.com/kemudi/kemudi/internal/kubelet/pod"
	"github.com/kemudi/kemudi/internal/kubelet/podstep"
	"github.com/kemudi/kemudi/internal/kubelet/pressure"
	"github.com/kemudi/kemudi/internal/kubelet/runtime"
	"github.com/kemudi/kemudi/internal/kubelet/server"
	"github.com/kemudi/kemudi/internal/kubelet/shutdown"
	"github.com/kemudi/kemudi/internal/kubelet/static"
	"github.com/kemudi/kemudi/internal/obs"
	"github.com/kemudi/kemudi/internal/task"
)

// pace is how often what the kernel does not tell of is looked at: how large
// directories and logs are.
const pace = 10 * time.Second

// New returns an agent that does nothing yet.
func New(o Options) (*Agent, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	a, err := wire(o)
	if err != nil {
		return nil, fmt.Errorf("kubelet: %w", err)
	}
	return a, nil
}

// wire makes the parts of an agent and joins them.
func wire(o Options) (*Agent, error) {
	a := &Agent{o: o, running: make(chan struct{}), registry: obs.NewRegistry(), cache: client.Cached(o.Transport, core.Pods, "spec.nodeName="+o.NodeName)}
	a.registry.MustRegister(features.Metrics{})
	a.watch = &runtime.Watch{
		Client: o.Runtime, Log: o.Log, Wanted: a.running, Metrics: runtime.NewMetrics(a.registry),
		Event: func(e *runtimeapi.ContainerEventResponse) { a.pods.Deliver(e) },
		Again: func(found map[types.UID]*runtime.Inventory, began time.Time) { a.pods.Replace(found, began) },
	}
	f, err := findFacts(&o)
	if err != nil {
		return nil, err
	}
	a.swap = f.machine.Swap
	puller, err := newPuller(&o)
	if err != nil {
		return nil, err
	}
	puller.Measured(a.registry)
	devices, claims := a.newDevices()
	a.node = nodeFor(&o, f, puller.Changes, devices)
	pins, err := a.newPins(f, devices)
	if err != nil {
		return nil, err
	}
	facts := f.forPods(&o, a.node.Allocatable(f.capacity))
	a.drivers = csi.NewDrivers(a.node, o.Log, a.registry)
	files, err := newDisk(&o, &facts, csi.Options{
		Root: o.RootDir, Seen: o.ToldRootDir, Node: o.NodeName, Drivers: a.drivers, InUse: a.node.SetVolumesInUse, Log: o.Log,
	})
	if err != nil {
		return nil, err
	}
	runner := container.New(container.Runner{
		Runtime: o.Runtime, Events: o.Events, Log: o.Log, Node: a.node, Facts: facts, Disk: files, Objects: objects.New(o.Transport, o.Log),
		Puller: puller, Ledger: admit.NewLedger(), Devices: devices, Pins: pins, Claims: claims,
		Version: o.Version, ResolvConf: o.ResolvConf, Connected: o.Network.Connected, Registry: a.registry,
	})
	set := pod.Options{
		Runner: runner, Transport: o.Transport, Every: pace, Metrics: a.registry, Forgotten: func(id string) { a.server.Forget(id) },
		Admit: a.gate(runner, f).admit, Drained: o.Network.Drained,
		RestartWait: o.Settings.Containers.RestartWait, Tracing: o.Tracing,
	}
	gauges := o.fake.gauges
	if gauges == nil && !o.Simulated {
		gauges = pressure.Machine{Root: o.RootDir, Images: o.Images, Runner: runner, PodsCgroup: podsCgroup(&o), PodsMemory: o.Settings.heldMemory(f.capacity)}
	}
	if gauges != nil {
		set.Usage = gauges.Pod
	}
	a.pods = pod.NewSet(set)
	if a.static, err = newStatic(&o, a.pods); err != nil {
		return nil, err
	}
	a.server = server.New(server.Options{
		NodeName: o.NodeName, Pods: a.pods, Cached: a.cache, Config: configuration(&o), Settings: o.Settings.Serve,
		CheckpointDir: filepath.Join(o.RootDir, server.CheckpointDir), Images: o.Images, Machine: f.machine, RootDir: o.RootDir, Registry: a.registry, Log: o.Log, Tracing: o.Tracing,
	})
	a.parts = append(a.partsWith(gauges), a.deviceParts()...)
	if !o.Simulated {
		a.parts = append(a.parts, part{"node allocatable", a.enforce(f.capacity)})
	}
	return a, nil
}

// gate returns where pods are taken on.
func (a *Agent) gate(runner *container.Runner, f *facts) *gate {
	return &gate{
		Runner: runner, sysctls: f.sysctls, watch: a.watch, appArmor: a.o.Simulated || f.machine.AppArmor,
		end: func(uid types.UID, e podstep.Eviction) { a.pods.Evict(uid, e) }, preempted: admit.NewPreemptions(a.registry),
	}
}

// partsWith lists what Run runs, in the order of its start.
func (a *Agent) partsWith(gauges pressure.Gauges) []part {
	o, runner := &a.o, a.pods.Runner
	collector := image.NewCollector(image.CollectorOptions{
		Config: o.ImageConfig, Images: o.Images, Runtime: o.Runtime, Puller: runner.Puller, Log: o.Log, Tracing: o.Tracing,
		Event: func(kind, reason, message string) { o.Events.Event(a.node.Self(), kind, reason, message) },
	})
	list := []part{{"heartbeat", a.heartbeat}, {"runtime events", a.watch.Run}, {"pods", a.followPods}, {"unknown pods", a.removeUnknown}}
	if o.Settings.ManifestDir != "" || o.Settings.ManifestURL.Address != "" {
		list = append(list, part{"static pods", func(ctx context.Context) error { return a.static.Run(ctx, a.running) }})
	}
	if gauges != nil {
		thresholds, err := o.Settings.Soft.With(o.Settings.Eviction)
		if err != nil {
			panic(fmt.Sprintf("kubelet: settings that are checked: %v", err))
		}
		w := &pressure.Watch{
			Thresholds: evict.WithPods(thresholds), MaxGrace: o.Settings.Soft.MaxPodGrace, Reclaim: o.Settings.MinReclaim, Transition: o.Settings.Transition, Gauges: gauges,
			Pods: a.pods, Runtime: o.Runtime, Images: collector, Node: a.node, Events: o.Events, Log: o.Log,
			Evicted: pressure.NewEvictions(a.registry),
		}
		list = append(list, part{"pressure", func(ctx context.Context) error { return w.Run(ctx, a.running) }})
	}
	if groups := o.Settings.Shutdown.Groups(); len(groups) > 0 && !o.Simulated {
		w := &shutdown.Watch{
			Groups: groups, ConfDir: shutdown.ConfDir, Pods: a.pods.Unfinished, End: a.pods.Evict, Down: a.node.SetGoingDown,
			Event: func(kind, reason, message string) { o.Events.Event(a.node.Self(), kind, reason, message) }, Log: o.Log,
			Metrics: shutdown.NewMetrics(a.registry),
		}
		list = append(list, part{"shutdown", w.Run})
	}
	if runner.Disk != nil {
		oom := &pressure.OutOfMemory{Event: func(kind, reason, message string) { o.Events.Event(a.node.Self(), kind, reason, message) }, Log: o.Log}
		list = append(list, part{"kernel log", oom.Run})
		volumes := &localvolume.Collector{Node: o.NodeName, Transport: o.Transport, Erase: runner.Disk.Volumes.Erase, Log: o.Log}
		list = append(list, part{"log rotation", runner.Disk.Logs.Run}, part{"image garbage collection", collector.Run}, part{"local volumes", volumes.Run})
		list = append(list, part{"volumes of drivers", runner.Disk.Driven.Run}, part{"drivers", func(ctx context.Context) error {
			return a.drivers.Run(ctx, a.pods.DriverCame, runner.Disk.Driven.Hearing(runner.Objects.FollowCSIDriver))
		}})
	}
	return list
}

// followPlugins registers plugins of the node. Where their directory cannot be watched, as when others have
// taken all that may watch, it tries again.
func (a *Agent) followPlugins(ctx context.Context) error {
	dir, runner := filepath.Join(a.o.pluginRoot(), plugin.RegistryDir), a.pods.Runner
	handlers := map[string]plugin.Handler{plugin.Device: runner.Devices.Handler(), plugin.DRA: runner.Claims.Handler()}
	if runner.Disk != nil {
		handlers[plugin.CSI] = a.drivers
	}
	for failures := 1; ; failures++ {
		err := plugin.Watch(ctx, dir, handlers, a.o.Log)
		if ctx.Err() != nil {
			return err
		}
		again := backoff.Call.After(failures)
		a.o.Log.Error("follow plugins", "err", err, "retry", again)
		if err := task.Sleep(ctx, again); err != nil {
			return err
		}
	}
}

// newPuller returns what pulls images, with the credentials that every pod of the
// node may use.
func newPuller(o *Options) (*image.Puller, error) {
	providers, err := image.NewProviders(o.ImageConfig, o.Log)
	if err != nil {
		return nil, err
	}
	var records *image.Records
	if !o.Simulated {
		records = image.NewRecords(filepath.Join(o.RootDir, image.RecordsDir))
	}
	return image.NewPuller(o.Images, o.ImageConfig, records, func(ctx context.Context, name string, account *image.Account) *image.Keyring {
		if o.Simulated {
			return nil
		}
		k, err := image.NodeKeyring(o.RootDir)
		if err != nil {
			o.Log.Warn("read registry credentials of the node", "err", err)
		}
		providers.AddTo(ctx, k, name, account)
		return k
	}), nil
}

// nodeFor returns the node; changes is how many images have been pulled or removed, devices those of
// its plugins.
func nodeFor(o *Options, f *facts, changes func() int64, devices *device.Manager) *node.Node {
	var eviction evict.Thresholds
	if !o.Simulated {
		eviction = o.Settings.Eviction
	}
	return node.New(node.Options{
		Name: o.NodeName, Transport: o.Transport, Runtime: o.Runtime, Images: o.Images, Events: o.Events, Log: o.Log,
		Simulated: o.Simulated, ByHand: o.ByHand, Closed: o.Closed, Labels: o.Labels, Taints: o.Taints, Port: o.Port, Version: o.Version,
		Machine: f.machine, Addresses: o.NodeIPs, External: o.Settings.External, Said: o.Settings.SaidIPs, Capacity: f.capacity,
		Reserved: []v1.ResourceList{v1.ResourceList(o.Settings.KubeReserved), v1.ResourceList(o.Settings.SystemReserved)}, Eviction: eviction,
		ImageChanges: changes, Devices: devices.Node, StatusPeriod: o.Settings.StatusPeriod,
		ProviderID: o.Settings.ProviderID, MostImages: o.Settings.MostImages,
	})
}

// newDisk returns what pods have on the machine; nil on a simulated node.
func newDisk(o *Options, facts *cri.Node, driven csi.Options) (*disk.Disk, error) {
	if o.Simulated {
		return nil, nil
	}
	return disk.New(disk.Options{
		RootDir: o.RootDir, PodLogsDir: o.PodLogsDir, LogLinksDir: LogLinksDir, Node: facts, Driven: driven, Log: o.Log,
		Logs: &logs.Rotator{
			Limits: logs.Limits{Size: o.Settings.LogMaxSize.Value(), Files: o.Settings.LogMaxFiles}, Every: pace, Log: o.Log,
			Reopen: func(ctx context.Context, id string) error {
				_, err := o.Runtime.ReopenContainerLog(ctx, &runtimeapi.ReopenContainerLogRequest{ContainerId: id})
				return err
			},
		},
	})
}

// newStatic returns the static pods, of which there are none without a directory or a URL.
func newStatic(o *Options, set *pod.Set) (*static.Pods, error) {
	var dir *manifest.Dir
	if path := o.Settings.ManifestDir; path != "" {
		if err := os.MkdirAll(path, 0o755); err != nil {
			return nil, fmt.Errorf("make directory of manifests: %w", err)
		}
		dir = &manifest.Dir{Path: path, Node: o.NodeName}
	}
	var url *manifest.URL
	if from := o.Settings.ManifestURL; from.Address != "" {
		url = &manifest.URL{Address: from.Address, Header: from.Header, Node: o.NodeName}
		if !o.Simulated {
			url.Kept = filepath.Join(o.RootDir, "manifests-of-url")
		}
		if err := url.Restore(); err != nil {
			o.Log.Warn("take up static pods", "err", err)
		}
	}
	return static.New(dir, url, set, o.Log), nil
}
