package volume

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
)

// mountDeadline is how long the machine's mount program may take, which waits for servers.
const mountDeadline = 2 * time.Minute

// export is what an NFS server exports, as a pod wants it.
type export struct {
	*v1.NFSVolumeSource
	readOnly bool
	options  []string
}

// mount mounts the export, unless it is mounted, by the machine's mount program and its helper for NFS, as people would.
func (e *export) mount(ctx context.Context, dir string) error {
	if mounted, err := IsMounted(dir); err != nil || mounted {
		return err
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return fmt.Errorf("make mount point: %w", err)
	}
	options := slices.Clone(e.options)
	if e.readOnly {
		options = append([]string{"ro"}, options...)
	}
	return mountBy(ctx, "nfs", options, e.source(), dir)
}

// mountBy has the machine's mount program mount something at a directory.
func mountBy(ctx context.Context, fsType string, options []string, source, dir string) error {
	args := []string{"-t", fsType}
	if len(options) > 0 {
		args = append(args, "-o", strings.Join(options, ","))
	}
	args = append(args, source, dir)
	ctx, cancel := context.WithTimeout(ctx, mountDeadline)
	defer cancel()
	cmd := exec.CommandContext(ctx, "mount", args...)
	cmd.WaitDelay = time.Second // the kernel may hold it longer than it is waited for
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("mount failed: %w\nMounting command: mount\nMounting arguments: %s\nOutput: %s", err, strings.Join(args, " "), out)
	}
	return nil
}

// source is the export as mount programs know it.
func (e *export) source() string {
	server := e.Server
	if ip, err := netip.ParseAddr(server); err == nil && ip.Is6() {
		server = "[" + server + "]"
	}
	return server + ":" + e.Path
}
