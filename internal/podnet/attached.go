package podnet

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
)

// Attachment is a pod in the network of this node, as the CNI library noted it. What the API
// says of it may be older.
type Attachment struct {
	Namespace, Name, UID string
	Addrs                []netip.Addr
	Link                 string // the node's end of its link
	MAC                  string // of the pod's end
}

// Attached lists the pods that are in the network of this node. Those of which nothing can be read,
// as after a loss of power, are left out, and the error says so.
func Attached(o Options) ([]Attachment, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	var list []Attachment
	var unread []error
	for _, dir := range []string{o.CNICacheDir, o.RuntimeCacheDir} {
		files, err := o.cachedResults(dir)
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			a, err := o.readAttachment(f)
			if errors.Is(err, fs.ErrNotExist) {
				continue // it has gone with its pod
			}
			if err != nil {
				unread = append(unread, err)
				continue
			}
			list = append(list, a)
		}
	}
	return list, errors.Join(unread...)
}

// readAttachment reads a file of the CNI library.
func (o *Options) readAttachment(file string) (Attachment, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return Attachment{}, err
	}
	var noted struct {
		CNIArgs [][2]string `json:"cniArgs"`
		Result  struct {
			Interfaces []struct{ Name, MAC, Sandbox string } `json:"interfaces"`
			IPs        []struct {
				Address netip.Prefix `json:"address"`
			} `json:"ips"`
		} `json:"result"`
	}
	if err := json.Unmarshal(data, &noted); err != nil {
		return Attachment{}, fmt.Errorf("decode CNI result %s: %w", file, err)
	}
	var a Attachment
	for _, arg := range noted.CNIArgs {
		switch arg[0] {
		case "K8S_POD_NAMESPACE":
			a.Namespace = arg[1]
		case "K8S_POD_NAME":
			a.Name = arg[1]
		case "K8S_POD_UID":
			a.UID = arg[1]
		}
	}
	for _, l := range noted.Result.Interfaces {
		switch {
		case l.Sandbox != "":
			a.MAC = l.MAC
		case l.Name != o.Bridge:
			a.Link = l.Name
		}
	}
	for _, ip := range noted.Result.IPs {
		a.Addrs = append(a.Addrs, ip.Address.Addr().Unmap())
	}
	return a, nil
}
