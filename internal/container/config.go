package container

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/containerd/containerd/v2/pkg/cap"
	"github.com/containerd/containerd/v2/plugins"
	"github.com/containerd/containerd/v2/plugins/snapshots/overlay/overlayutils"
	"github.com/containerd/platforms"
)

const (
	snapshotterOverlay = "overlayfs"
	snapshotterNative  = "native"
	handlerRunc        = "runc" // the handler of pods that name none
)

// settings maps a containerd plugin to the settings it does not take by
// default, in the words of containerd's configuration file.
type settings map[string]map[string]any

// chooseSnapshotter fills in o.Snapshotter by asking the kernel.
func chooseSnapshotter(o Options) Options {
	if o.Snapshotter != "" {
		return o
	}
	o.Snapshotter = snapshotterOverlay
	if err := overlayutils.Supported(o.rootDir()); err != nil {
		o.Logger.Warn("overlayfs does not work here: images are unpacked as plain copies", "dir", o.rootDir(), "err", err)
		o.Snapshotter = snapshotterNative
	}
	return o
}

// pluginSettings is the whole configuration of the embedded containerd.
func pluginSettings(o Options) settings {
	return settings{
		"io.containerd.cri.v1.images": {
			"snapshotter":   o.Snapshotter,
			"pinned_images": map[string]any{"sandbox": PauseImage},
			"registry":      map[string]any{"config_path": o.registriesDir()},
			// Seconds between two looks at how much the writable layers hold.
			"stats_collect_period": 60,
		},
		"io.containerd.cri.v1.runtime": runtimeSettings(o),
		"io.containerd.grpc.v1.cri": {
			"disable_tcp_service":   true,
			"stream_server_address": "127.0.0.1", // exec, attach and port-forward, by unguessable token
			"stream_server_port":    "0",
			"stream_idle_timeout":   o.StreamIdle.String(),
		},
		"io.containerd.shim.v1.manager": {
			"socket_dir": o.shimSockets(),
			"env":        []string{"PATH=" + o.binDir() + ":" + os.Getenv("PATH")}, // a shim that cleans up needs runc
		},
		"io.containerd.transfer.v1.local": {
			"config_path":            o.registriesDir(),
			"max_concurrent_unpacks": 2,
			"unpack_config": []map[string]any{{
				"platform":    platforms.Format(platforms.DefaultSpec()),
				"snapshotter": o.Snapshotter,
				"differ":      "walking",
			}},
		},
		// By default the collector looks four times a second whether something was
		// deleted. Here a deletion is what wakes it, half a second later, so that many
		// are collected at once; it looks by itself only every half minute or less
		// often, for what was left by work that failed.
		"io.containerd.gc.v1.scheduler": {
			"deletion_threshold": 1,
			"schedule_delay":     "500ms",
			"pause_threshold":    0.00015,
		},
		"io.containerd.service.v1.diff-service": {
			"default": []string{"walking"},
		},
	}
}

func runtimeSettings(o Options) map[string]any {
	return map[string]any{
		"containerd": map[string]any{
			"default_runtime_name": handlerRunc,
			"runtimes":             handlerSettings(o),
		},
		"cni": map[string]any{
			"bin_dirs":              []string{o.binDir(), "/opt/cni/bin"},
			"conf_dir":              o.CNIConfDir,
			"max_conf_num":          1,
			"use_internal_loopback": true, // no loopback plugin, no process for it
		},
		"netns_mounts_under_state_dir": true,
		"enable_unprivileged_ports":    true,
		"enable_unprivileged_icmp":     true,
		"cdi_spec_dirs":                []string{"/etc/cdi", "/var/run/cdi"}, // where drivers of devices write by custom
		"restrict_oom_score_adj":       !canLowerOOMScore(),
		"ignore_deprecation_warnings":  []string{"io.containerd.deprecation/cgroup-v1"}, // for us to say, not for the node's status
		// CPU rates are for the reader of the counters to work out: sampling
		// every container once a second is most of an idle runtime's work.
		"stats_collect_period": "24h",
	}
}

// handlerSettings are runc and the handlers that were asked for.
func handlerSettings(o Options) map[string]any {
	all := map[string]any{}
	add := func(name string, h Handler) {
		options := map[string]any{
			"BinaryName":    filepath.Join(o.binDir(), "runc"),
			"Root":          o.runcRoot(),
			"SystemdCgroup": false,
		}
		if version2() {
			options["ShimCgroup"] = o.shimCgroup()
		}
		if h.Type == "" || h.Type == plugins.RuntimeRuncV2 {
			h.Type = plugins.RuntimeRuncV2
			setDefault(&h.Path, o.shim())
		} else {
			clear(options)
		}
		maps.Copy(options, h.Options)
		all[name] = map[string]any{"runtime_type": h.Type, "runtime_path": h.Path, "sandboxer": "podsandbox", "options": options}
		if h.Path == o.shim() { // of others a pod's own annotation would count
			all[name].(map[string]any)["pod_annotations"] = []string{annotationGroup}
		}
	}
	add(handlerRunc, Handler{})
	for name, h := range o.Handlers {
		add(name, h)
	}
	return all
}

// canLowerOOMScore reports whether this process may protect others from the
// out-of-memory killer more than itself is; some sandboxes do not let root.
func canLowerOOMScore() bool {
	caps, err := cap.Current()
	return err == nil && slices.Contains(caps, "CAP_SYS_RESOURCE")
}

// disabled names the registered plugins that are not wanted.
func disabled(o Options) map[string]bool {
	other := snapshotterNative
	if o.Snapshotter == snapshotterNative {
		other = snapshotterOverlay
	}
	return map[string]bool{fmt.Sprintf("%s.%s", plugins.SnapshotPlugin, other): true}
}
