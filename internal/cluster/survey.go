package cluster

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/kemudi/kemudi/internal/api"
	"github.com/kemudi/kemudi/internal/api/networking"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/store"
	"github.com/kemudi/kemudi/internal/store/seal"
	"github.com/kemudi/kemudi/internal/store/takeover"
	"github.com/kemudi/kemudi/internal/watchcache"
)

// registry is before all keys of a Kubernetes.
const registry = "/registry/"

// inventory is what there is in a store that is taken over.
type inventory struct {
	defs map[string]*resource.Def // by what their keys begin with, between slashes

	objects int
	kinds   map[string]bool
	unknown map[string]int  // of kinds that are not served, by resource and group
	custom  map[string]bool // resources that definitions make
	foreign int             // keys of other programs
	opaque  map[string]int  // objects that cannot be read, likewise
	sealed  map[string]int  // those of them that are encrypted
	builtIn []string        // what runs there and is a part of the program here

	used ranges
}

// ranges are the addresses and names that objects have.
type ranges struct {
	services []netip.Addr
	more     []netip.Prefix // of services, beside those that a cluster begins with
	pods     []netip.Prefix // shares of nodes
	ports    []int32
	dns      netip.Addr // of the service kube-dns
	said     struct {   // by the cluster itself
		services     []string // what it was begun with, by its objects and then by its kubeadm
		pods, domain string
	}
}

// ownRecords are what API servers keep for themselves: each has its own, and none is an object.
var ownRecords = []string{"ranges", "masterleases", "peerserverleases", "health", "kemudi"}

// survey looks through a store, whose values open opens. It refuses one that could not be served as it is.
func (o *Options) survey(src *takeover.Source, open func(look func(store.KV) error) func(store.KV) error) (*inventory, error) {
	i := &inventory{
		defs: map[string]*resource.Def{}, kinds: map[string]bool{}, unknown: map[string]int{}, custom: map[string]bool{}, opaque: map[string]int{}, sealed: map[string]int{},
	}
	for _, d := range api.All() {
		if d.Stored() {
			i.defs[d.StoragePrefix] = d
		}
	}
	if err := src.Each(open(i.add)); err != nil {
		return nil, err
	}
	for name := range i.custom { // objects of kinds that definitions make
		if n := i.unknown[name]; n > 0 {
			i.objects, i.kinds[name] = i.objects+n, true
			delete(i.unknown, name)
		}
	}
	switch {
	case i.objects == 0 && len(i.unknown) == 0:
		return nil, fmt.Errorf("there is no Kubernetes in it: none of its %d keys is that of an object, %s... (a cluster whose API servers have another --etcd-prefix is not taken over)", src.Keys(), registry)
	case len(i.sealed) > 0:
		return nil, fmt.Errorf("%s are encrypted by its API servers, and could not be read here: start with the file of their --encryption-provider-config, by the same flag. Without it, put the provider identity first there, restart them, "+
			"write all of these again (kubectl get secrets -A -o json | kubectl replace -f -), and then take it over", counted(i.sealed))
	}
	return i, o.fits(&i.used)
}

// add takes in one key.
func (i *inventory) add(kv store.KV) error {
	rest, ok := strings.CutPrefix(kv.Key, registry)
	if !ok {
		i.foreign++
		return nil
	}
	parts := strings.SplitN(rest, "/", 3)
	if slices.Contains(ownRecords, parts[0]) {
		return nil
	}
	var def *resource.Def
	name := parts[0]
	if len(parts) > 2 {
		def = i.defs[parts[0]+"/"+parts[1]]
	}
	if def == nil {
		def = i.defs[parts[0]]
	}
	switch {
	case def != nil:
		name = def.String()
	case strings.Contains(parts[0], ".") && len(parts) > 1: // of a group
		name = parts[1] + "." + parts[0]
	}
	if def == nil {
		i.unknown[name]++
		return nil
	}
	obj, err := watchcache.Decode(def, kv.Value, kv.Rev)
	switch {
	case err == nil:
		i.objects++
		i.kinds[name] = true
		i.look(def, obj)
	case seal.Sealed(kv.Value):
		i.sealed[name]++
	default:
		i.opaque[name]++
	}
	return nil
}

// builtIns are what others run as pods and this program does itself.
var builtIns = []string{"daemonsets/kube-proxy", "deployments/coredns", "deployments/metrics-server"}

// look notes what an object says of addresses, and whether it is a part of the other Kubernetes.
func (i *inventory) look(def *resource.Def, obj resource.Object) {
	u := &i.used
	switch obj := obj.(type) {
	case *apiextensionsv1.CustomResourceDefinition:
		i.custom[obj.Name] = true
	case *networkingv1.ServiceCIDR:
		if obj.Name == networking.DefaultServiceCIDR {
			u.said.services = slices.Insert(u.said.services, 0, strings.Join(obj.Spec.CIDRs, ","))
		} else {
			u.more = append(u.more, networking.ServiceRanges(obj)...)
		}
	case *corev1.Service:
		for _, text := range obj.Spec.ClusterIPs {
			if ip, err := netip.ParseAddr(text); err == nil {
				u.services = append(u.services, ip)
			}
		}
		for _, p := range obj.Spec.Ports {
			if p.NodePort != 0 {
				u.ports = append(u.ports, p.NodePort)
			}
		}
		if obj.Namespace == metav1.NamespaceSystem && obj.Name == "kube-dns" {
			u.dns, _ = netip.ParseAddr(obj.Spec.ClusterIP) // headless: none
		}
	case *corev1.Node:
		for _, text := range obj.Spec.PodCIDRs {
			if p, err := netip.ParsePrefix(text); err == nil {
				u.pods = append(u.pods, p)
			}
		}
	case *corev1.ConfigMap:
		if obj.Namespace == metav1.NamespaceSystem && obj.Name == "kubeadm-config" {
			u.readKubeadm(obj.Data["ClusterConfiguration"])
		}
	}
	if slices.Contains(builtIns, def.Plural+"/"+obj.GetName()) && obj.GetNamespace() == metav1.NamespaceSystem {
		i.builtIn = append(i.builtIn, def.Singular+"/"+obj.GetName())
	}
}

// readKubeadm reads what kubeadm has been told of the network.
func (r *ranges) readKubeadm(text string) {
	var c struct {
		Networking struct {
			DNSDomain     string `json:"dnsDomain"`
			PodSubnet     string `json:"podSubnet"`
			ServiceSubnet string `json:"serviceSubnet"`
		} `json:"networking"`
	}
	if yaml.Unmarshal([]byte(text), &c) != nil {
		return // it is for people
	}
	r.said.domain, r.said.pods = c.Networking.DNSDomain, c.Networking.PodSubnet
	r.said.services = append(r.said.services, c.Networking.ServiceSubnet)
}

// rangesWith is what the cluster says of ranges of services that have these addresses; "": nothing.
func (r *ranges) rangesWith(addrs []netip.Addr) string {
	for _, said := range r.said.services {
		list := networking.ServiceRanges(&networkingv1.ServiceCIDR{Spec: networkingv1.ServiceCIDRSpec{CIDRs: strings.Split(said, ",")}})
		has := func(a netip.Addr) bool {
			return slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(a) })
		}
		if !slices.ContainsFunc(addrs, func(a netip.Addr) bool { return !has(a) }) {
			return said
		}
	}
	return ""
}

// fits refuses settings with which objects of the store could not be served as they are, and says
// which would do.
func (o *Options) fits(u *ranges) error {
	var flags []string
	need := func(flag, value string) { flags = append(flags, "--"+flag+"="+value) }
	n := o.Network
	outside := func(list []netip.Prefix) func(netip.Addr) bool {
		return func(a netip.Addr) bool {
			return !slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(a) })
		}
	}
	if away := slices.DeleteFunc(slices.Clone(u.services), func(a netip.Addr) bool { return !outside(slices.Concat(n.ServiceCIDRs, u.more))(a) }); len(away) > 0 {
		need("service-cluster-ip-range", orPlace(u.rangesWith(away), "RANGE-WITH-"+away[0].String()))
	}
	if away := slices.DeleteFunc(slices.Clone(u.pods), func(p netip.Prefix) bool { return !outside(n.ClusterCIDRs)(p.Addr()) }); len(away) > 0 {
		need("cluster-cidr", orPlace(u.said.pods, "RANGE-WITH-"+away[0].String()))
	}
	if u.dns.IsValid() && u.dns != n.ClusterDNS {
		need("cluster-dns", u.dns.String())
	}
	if u.said.domain != "" && u.said.domain != n.ClusterDomain {
		need("cluster-domain", u.said.domain)
	}
	if len(u.ports) > 0 {
		low, high := slices.Min(u.ports), slices.Max(u.ports)
		if low < int32(n.NodePorts.First) || high > int32(n.NodePorts.Last) {
			need("service-node-port-range", PortRange{First: min(n.NodePorts.First, uint16(low)), Last: max(n.NodePorts.Last, uint16(high))}.String())
		}
	}
	if len(flags) == 0 {
		return nil
	}
	return errors.New("it has other addresses or names than this server gives out. Say the same at each start, after -- of kemudi up or in /etc/kemudi/config.yaml: " + strings.Join(flags, " "))
}

func orPlace(said, place string) string {
	if said != "" {
		return said
	}
	return place
}

// lines say what was taken over, and what comes of the rest.
func (i *inventory) lines() []string {
	list := []string{fmt.Sprintf("took over %d objects of %d kinds", i.objects, len(i.kinds))}
	if len(i.unknown) > 0 {
		list = append(list, "left as they are, as no kind here: "+counted(i.unknown))
	}
	if len(i.opaque) > 0 {
		list = append(list, "left as they are, as nobody can read them: "+counted(i.opaque))
	}
	if i.foreign > 0 {
		list = append(list, fmt.Sprintf("left as they are: %d keys of other programs", i.foreign))
	}
	if len(i.builtIn) > 0 {
		slices.Sort(i.builtIn)
		list = append(list, "not needed any more, as they are built in here: kubectl -n kube-system delete "+strings.Join(i.builtIn, " "))
	}
	return list
}

// counted is a list of kinds with how many there are of each.
func counted(of map[string]int) string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(of)) {
		list = append(list, fmt.Sprintf("%s (%d)", name, of[name]))
	}
	return strings.Join(list, ", ")
}
