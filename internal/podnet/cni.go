package podnet

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/kemudi/kemudi/internal/wholefile"
)

// networkName is the name of the network in CNI's files. Each cluster of a
// machine has one of its own, made from its directory: what the CNI library
// notes of pods, in a directory that all share, bears it.
func (o *Options) networkName() string {
	sum := sha256.Sum256([]byte(filepath.Clean(o.DataDir)))
	return "kemudi-" + hex.EncodeToString(sum[:4])
}

type confList struct {
	CNIVersion string   `json:"cniVersion"`
	Name       string   `json:"name"`
	Plugins    []plugin `json:"plugins"`
}

type plugin struct {
	Type        string `json:"type"`
	Bridge      string `json:"bridge"`
	IsGateway   bool   `json:"isGateway"`
	HairpinMode bool   `json:"hairpinMode"`
	MTU         int    `json:"mtu"`
	IPAM        ipam   `json:"ipam"`
}

type ipam struct {
	Type    string     `json:"type"`
	DataDir string     `json:"dataDir"`
	Ranges  [][]subnet `json:"ranges"`
	Routes  []route    `json:"routes"`
}

type subnet struct {
	Subnet string `json:"subnet"`
}

type route struct {
	Dst string `json:"dst"`
}

// confBytes is the CNI configuration of the standard plugins bridge and
// host-local. Host ports are the service proxy's, masquerading is ours.
func confBytes(o *Options, mtu int) ([]byte, error) {
	p := plugin{Type: "bridge", Bridge: o.Bridge, IsGateway: true, HairpinMode: true, MTU: mtu}
	p.IPAM = ipam{Type: "host-local", DataDir: o.ipamDir()}
	for _, c := range o.PodCIDRs {
		p.IPAM.Ranges = append(p.IPAM.Ranges, []subnet{{c.Masked().String()}})
		p.IPAM.Routes = append(p.IPAM.Routes, podRoutes(c)...)
	}
	return json.MarshalIndent(confList{CNIVersion: "1.0.0", Name: o.networkName(), Plugins: []plugin{p}}, "", "  ")
}

// podRoutes are the ways of a pod, all by its gateway: to everywhere, and to
// both halves of its own subnet, since those are more specific than the direct way
// to neighbours that comes with the address. The half with the gateway must come
// last: from then on the kernel would no longer take the gateway for a neighbour.
func podRoutes(c netip.Prefix) []route {
	c = c.Masked()
	all := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	if c.Addr().Is6() {
		all = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	}
	low := netip.PrefixFrom(c.Addr(), c.Bits()+1)
	upper := c.Addr().AsSlice()
	upper[c.Bits()/8] |= 0x80 >> (c.Bits() % 8)
	addr, _ := netip.AddrFromSlice(upper)
	high := netip.PrefixFrom(addr, c.Bits()+1)
	return []route{{all.String()}, {high.String()}, {low.String()}}
}

// writeConf writes the configuration, which tells the runtime that the network
// is ready, unless it is as it should be.
func writeConf(o *Options, mtu int) error {
	want, err := confBytes(o, mtu)
	if err != nil {
		return fmt.Errorf("encode CNI configuration: %w", err)
	}
	if got, err := os.ReadFile(o.confFile()); err == nil && string(got) == string(want) {
		return nil
	}
	if err := placeConf(o.confFile(), want); err != nil {
		return fmt.Errorf("write CNI configuration: %w", err)
	}
	return nil
}

// placeConf puts the configuration in its place. containerd watches that
// directory: it would complain of a change, such as a file being written, after
// which there is no configuration yet, and takes no notice of one that is moved in
// from elsewhere. So the file is made elsewhere, moved in under another name, and
// then renamed.
func placeConf(path string, data []byte) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	beside := filepath.Join(filepath.Dir(dir), ".new-"+filepath.Base(path))
	if err := wholefile.Write(beside, data, 0o644); err != nil {
		return err
	}
	inside := path + ".new" // which no CNI program takes for a configuration
	if err := os.Rename(beside, inside); err != nil {
		return err
	}
	return os.Rename(inside, path)
}
