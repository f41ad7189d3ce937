package servers

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/coordination"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/store"
	"github.com/kemudi/kemudi/internal/watchcache"
)

// What a record says. The label is upstream's.
const (
	labelIdentity     = "apiserver.kubernetes.io/identity"
	identity          = "kube-apiserver"
	annotationAddress = "kemudi.io/server-address" // of its API: address and port
	annotationNode    = "kemudi.io/server-node"    // the node that its machine is
)

// namePrefix is what the names of records begin with, as upstream's.
const namePrefix = "apiserver-"

// recordSeconds is for how long clients take a record for good that is not renewed, as
// upstream's. It is rewritten after half of that.
const recordSeconds = 3600

// Self is what a server says of itself.
type Self struct {
	Host    string         // the machine's name: no other server of the cluster has it
	UID     string         // of this process: no other may ever have it
	Address netip.AddrPort // of its API; none: it is not told
	Node    string         // the node that runs on the machine; empty: none
}

// Name is that of the record, as upstream makes it of the machine's name.
func (s Self) Name() string {
	var text []byte
	for _, part := range []string{s.Host, identity} {
		text = append(binary.BigEndian.AppendUint16(text, uint16(len(part))), part...)
	}
	sum := sha256.Sum256(text)
	return namePrefix + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:16]))
}

// Identity is who holds the record.
func (s Self) Identity() string { return s.Name() + "_" + s.UID }

// SameProcess says that two holders of leases are one process: their identities end alike.
func SameProcess(a, b string) bool {
	_, x, _ := cutLast(a)
	_, y, _ := cutLast(b)
	return x != "" && x == y
}

func cutLast(identity string) (before, after string, ok bool) {
	i := strings.LastIndexByte(identity, '_')
	if i < 0 {
		return identity, "", false
	}
	return identity[:i], identity[i+1:], true
}

// record is the Lease that says so, since the process began and as of now.
func (s Self) record(began, now time.Time) *coordinationv1.Lease {
	l := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceSystem, Name: s.Name(), UID: types.UID(s.UID), CreationTimestamp: metav1.NewTime(began).Rfc3339Copy(),
			Labels: map[string]string{labelIdentity: identity, corev1.LabelHostname: s.Host},
		},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To(s.Identity()), LeaseDurationSeconds: ptr.To[int32](recordSeconds), RenewTime: ptr.To(metav1.NewMicroTime(now)),
		},
	}
	if s.Address.IsValid() || s.Node != "" {
		l.Annotations = map[string]string{}
	}
	if s.Address.IsValid() {
		l.Annotations[annotationAddress] = s.Address.String()
	}
	if s.Node != "" {
		l.Annotations[annotationNode] = s.Node
	}
	return l
}

// NodeOf is the node that a server's record names; empty: the lease is no record, or names none.
func NodeOf(l *coordinationv1.Lease) string {
	if l.Namespace != metav1.NamespaceSystem || l.Labels[labelIdentity] != identity {
		return ""
	}
	return l.Annotations[annotationNode]
}

// records are those of all servers, this Kubernetes' own or another's.
func records(leases *cache.Cache) []*coordinationv1.Lease {
	return client.Reader[*coordinationv1.Lease]{Cache: leases}.List(metav1.NamespaceSystem, labels.SelectorFromSet(labels.Set{labelIdentity: identity}))
}

// Living are the addresses of the servers that live, in order.
func Living(leases *cache.Cache) []netip.AddrPort {
	var list []netip.AddrPort
	for _, l := range records(leases) {
		if addr, err := netip.ParseAddrPort(l.Annotations[annotationAddress]); err == nil { // a record of another Kubernetes has none
			list = append(list, addr)
		}
	}
	slices.SortFunc(list, netip.AddrPort.Compare)
	return slices.Compact(list)
}

// Lives says whether the process with a record of that identity lives. The cache must be as new as
// what the identity is known by.
func Lives(leases *cache.Cache, identity string) bool {
	name, _, ok := cutLast(identity)
	if !ok {
		return false
	}
	l, ok := client.Reader[*coordinationv1.Lease]{Cache: leases}.Get(metav1.NamespaceSystem, name)
	return ok && ptr.Deref(l.Spec.HolderIdentity, "") == identity
}

// Others says whether servers on other machines than host's live, for who has nothing but the store yet.
// Of one that was killed a moment ago it says so, too.
func Others(ctx context.Context, st store.Store, host string) (bool, error) {
	def := coordination.Leases.Def
	page, err := st.List(ctx, def.Key(metav1.NamespaceSystem, namePrefix), store.ListOptions{})
	if err != nil {
		return false, fmt.Errorf("look for the records of other servers: %w", err)
	}
	for _, kv := range page.KVs {
		obj, err := watchcache.Decode(def, kv.Value, kv.Rev)
		if err != nil {
			continue // it is no record
		}
		l := obj.(*coordinationv1.Lease)
		if l.Labels[labelIdentity] == identity && l.Annotations[annotationAddress] != "" && l.Labels[corev1.LabelHostname] != host {
			return true, nil
		}
	}
	return false, nil
}

// key is that of the record in the store.
func (s Self) key() string { return coordination.Leases.Def.Key(metav1.NamespaceSystem, s.Name()) }
