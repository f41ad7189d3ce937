package podnet

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Limits say how fast a pod may receive and send, in bits a second; 0: as fast as it can.
type Limits struct{ Receive, Send uint64 }

// Limit holds a pod to its limits, for as long as its sandbox lives. What it receives
// waits at the node's end of its link, what it sends at its own. It works on the network
// namespace of the calling thread, and may be called at any time.
func Limit(o Options, sandbox string, l Limits) error {
	o, err := o.withDefaults()
	if err != nil {
		return err
	}
	ends, err := o.linkOf(sandbox)
	if err != nil {
		return err
	}
	if l.Receive > 0 {
		if err := slow(ends.node, l.Receive); err != nil {
			return fmt.Errorf("limit what the pod receives: %w", err)
		}
	}
	if l.Send > 0 {
		if err := inNamespace(ends.namespace, func() error { return slow(ends.pod, l.Send) }); err != nil {
			return fmt.Errorf("limit what the pod sends: %w", err)
		}
	}
	return nil
}

// linkEnds are the names of both ends of a pod's link.
type linkEnds struct {
	node, pod string
	namespace string // that of the pod, a file
}

// linkOf is the link of a pod, as the CNI library noted it.
func (o *Options) linkOf(sandbox string) (linkEnds, error) {
	for _, dir := range []string{o.CNICacheDir, o.RuntimeCacheDir} {
		files, err := filepath.Glob(filepath.Join(dir, "results", o.networkName()+"-"+sandbox+"-*"))
		if err != nil {
			return linkEnds{}, err
		}
		for _, f := range files {
			links, err := notedLinks(f)
			if err != nil {
				return linkEnds{}, err
			}
			var ends linkEnds
			for _, l := range links {
				switch {
				case l.Sandbox != "":
					ends.pod, ends.namespace = l.Name, l.Sandbox
				case l.Name != o.Bridge:
					ends.node = l.Name
				}
			}
			if ends.pod != "" && ends.node != "" {
				return ends, nil
			}
		}
	}
	return linkEnds{}, fmt.Errorf("nothing is noted of the network of sandbox %s", sandbox)
}

// notedLink is a link that a CNI plugin made.
type notedLink struct{ Name, Sandbox string }

// notedLinks reads the links of a file of the CNI library.
func notedLinks(file string) ([]notedLink, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var noted struct {
		Result struct {
			Interfaces []notedLink `json:"interfaces"`
		} `json:"result"`
	}
	if err := json.Unmarshal(data, &noted); err != nil {
		return nil, fmt.Errorf("decode CNI result %s: %w", file, err)
	}
	return noted.Result.Interfaces, nil
}

// slow has what leaves by a link wait its turn, at so many bits a second.
func slow(name string, bits uint64) error {
	nl, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open netlink: %w", err)
	}
	defer nl.Close()
	link, err := nl.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find link %s: %w", name, err)
	}
	const (
		atOnce = 64 << 10 // the largest packet that the kernel cuts into pieces
		waits  = 0.05     // seconds, before more is dropped
	)
	rate := max(bits/8, 1)
	burst := min(max(rate/100, atOnce), math.MaxInt32)
	queue := min(uint64(float64(rate)*waits)+burst, math.MaxInt32)
	return nl.QdiscReplace(&netlink.Tbf{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: link.Attrs().Index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT},
		Rate:       rate, Limit: uint32(queue), Buffer: netlink.Xmittime(rate, uint32(burst)),
	})
}

// inNamespace calls f on a thread that is in the network namespace of a file.
func inNamespace(file string, f func() error) error {
	fd, err := unix.Open(file, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open network namespace %s: %w", file, err)
	}
	defer unix.Close(fd)
	err = errors.New("the thread ended")
	var wg sync.WaitGroup
	wg.Go(func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		if err = unix.Setns(fd, unix.CLONE_NEWNET); err == nil {
			err = f()
		}
	})
	wg.Wait()
	return err
}
