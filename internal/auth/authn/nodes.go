package authn

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kemudi/kemudi/internal/auth/pki"
	"github.com/kemudi/kemudi/internal/cache"
)

// Annotations by which the cluster remembers whose key a node has.
const (
	// AnnotationNodeKeys are the pins of the keys by which a Node is known, the newest
	// first. A Node without it is known by any certificate in its name.
	AnnotationNodeKeys = "kemudi.io/node-keys"
	// AnnotationRegistered is the UID of the Node that a request for a certificate has led
	// to. What was signed for it is good as long as that Node is there.
	AnnotationRegistered = "kemudi.io/registered-node"
)

// nodeUser begins the name of a node's user.
const nodeUser = "system:node:"

// NodeKeys are the pins of the keys by which a node is known; none: by any.
func NodeKeys(node *corev1.Node) []string {
	return strings.FieldsFunc(node.Annotations[AnnotationNodeKeys], func(r rune) bool { return r == ',' })
}

// NodeAccess says which certificates of nodes are good. The certificate of a node that
// is there must be for its key. One that was signed for a request is good before its
// Node is there too, once: when the Node has been deleted, it is good no more, and the
// machine has to join again. Of one that was made without a request (by hand) only this
// process knows that its Node was deleted.
type NodeAccess struct {
	nodes, requests *cache.Cache
	fresh           func(ctx context.Context) error

	mu struct {
		sync.Mutex
		lasting map[[sha256.Size]byte]*lasting // by the digests of certificates
		deleted map[string]deletion            // Nodes that were seen to go, by name
		refused map[[sha256.Size]byte]time.Time
	}
}

// lasting is the requests that go on for as long as a certificate is good.
type lasting struct {
	leaf *x509.Certificate
	ends map[*func()]struct{}
}

// deletion is the end of a Node.
type deletion struct {
	rev int64 // of its last state
	at  time.Time
}

// NewNodeAccess returns one that asks the caches of Nodes and of requests for
// certificates. fresh returns when they show all that was written before.
func NewNodeAccess(nodes, requests *cache.Cache, fresh func(ctx context.Context) error) *NodeAccess {
	a := &NodeAccess{nodes: nodes, requests: requests, fresh: fresh}
	a.mu.lasting, a.mu.deleted = map[[sha256.Size]byte]*lasting{}, map[string]deletion{}
	a.mu.refused = map[[sha256.Size]byte]time.Time{}
	return a
}

// nodeOf is the node whose certificate it is; empty for all other certificates.
func nodeOf(leaf *x509.Certificate) string {
	if !slices.Contains(leaf.Subject.Organization, user.NodesGroup) {
		return ""
	}
	name, ok := strings.CutPrefix(leaf.Subject.CommonName, nodeUser)
	if !ok {
		return ""
	}
	return name
}

// refusalLasts is how long a refusal is not looked at again: who is refused asks often.
const refusalLasts = time.Second

// good checks a certificate that the authority has signed.
func (a *NodeAccess) good(ctx context.Context, leaf *x509.Certificate) error {
	name := nodeOf(leaf)
	if name == "" {
		return nil
	}
	err := a.admits(name, leaf)
	if err == nil {
		return nil
	}
	digest, now := sha256.Sum256(leaf.Raw), time.Now()
	a.mu.Lock()
	known := now.Before(a.mu.refused[digest])
	a.mu.Unlock()
	if known {
		return err
	}
	if err := a.fresh(ctx); err != nil { // the machine may have joined through another server
		return err
	}
	if err = a.admits(name, leaf); err == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.mu.refused) >= maxKnown {
		clear(a.mu.refused)
	}
	a.mu.refused[digest] = now.Add(refusalLasts)
	return err
}

// admits decides by what the caches show.
func (a *NodeAccess) admits(name string, leaf *x509.Certificate) error {
	uid := pki.RequestOf(leaf)
	it := a.nodes.Get(cache.Key("", name))
	if it != nil {
		keys := NodeKeys(it.Object.(*corev1.Node))
		if len(keys) == 0 || slices.Contains(keys, pki.Pin(leaf)) || uid != "" && a.pending(uid, 0) {
			return nil
		}
		return fmt.Errorf("the node %s is known by another key than the certificate's", name)
	}
	a.mu.Lock()
	gone, deleted := a.mu.deleted[name]
	a.mu.Unlock()
	switch {
	case uid != "" && !a.pending(uid, gone.rev), uid == "" && deleted && leaf.NotBefore.Before(gone.at):
		return fmt.Errorf("the node %s has been deleted", name)
	}
	return nil
}

// pending says whether the request of that UID is there, has changed since the revision, and
// has led to no Node yet.
func (a *NodeAccess) pending(uid string, since int64) bool {
	return slices.ContainsFunc(a.requests.List("", labels.Everything()), func(it *cache.Item) bool {
		r := it.Object.(*certificatesv1.CertificateSigningRequest)
		return string(r.UID) == uid && r.Annotations[AnnotationRegistered] == "" && it.Rev > since
	})
}

// While calls end, once, when the certificate of a request is good no more. The caller
// calls stop when the request is over. For who is no node nothing ever happens.
func (a *NodeAccess) While(r *http.Request, end func()) (stop func()) {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 || nodeOf(r.TLS.PeerCertificates[0]) == "" {
		return func() {}
	}
	leaf := r.TLS.PeerCertificates[0]
	digest, mine := sha256.Sum256(leaf.Raw), &end
	a.mu.Lock()
	l := a.mu.lasting[digest]
	if l == nil {
		l = &lasting{leaf: leaf, ends: map[*func()]struct{}{}}
		a.mu.lasting[digest] = l
	}
	l.ends[mine] = struct{}{}
	a.mu.Unlock()
	if a.admits(nodeOf(leaf), leaf) != nil { // it has lost its access since it was asked for, and before this was noted
		a.end(digest)
	}
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if delete(l.ends, mine); len(l.ends) == 0 && a.mu.lasting[digest] == l {
			delete(a.mu.lasting, digest)
		}
	}
}

// end ends what goes on by a certificate.
func (a *NodeAccess) end(digest [sha256.Size]byte) {
	var ends []*func()
	a.mu.Lock()
	if l := a.mu.lasting[digest]; l != nil {
		ends = slices.Collect(maps.Keys(l.ends))
		delete(a.mu.lasting, digest)
	}
	a.mu.Unlock()
	for _, end := range ends {
		(*end)()
	}
}

// Run ends what goes on by certificates that are good no more, until ctx ends.
func (a *NodeAccess) Run(ctx context.Context) error {
	err := a.nodes.Each(ctx, cache.FollowOptions{}, func(deltas []cache.Delta) error {
		for _, d := range deltas {
			a.changed(d)
		}
		return nil
	})
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (a *NodeAccess) changed(d cache.Delta) {
	if d.Prev == nil {
		return
	}
	before := d.Prev.Object.(*corev1.Node)
	if d.Now != nil && d.Now.Object.(*corev1.Node).Annotations[AnnotationNodeKeys] == before.Annotations[AnnotationNodeKeys] {
		return
	}
	name := before.Name
	a.mu.Lock()
	if d.Now == nil {
		if len(a.mu.deleted) >= maxKnown {
			clear(a.mu.deleted)
		}
		a.mu.deleted[name] = deletion{rev: d.Prev.Rev, at: time.Now()}
	}
	held := map[[sha256.Size]byte]*x509.Certificate{}
	for digest, l := range a.mu.lasting {
		if nodeOf(l.leaf) == name {
			held[digest] = l.leaf
		}
	}
	a.mu.Unlock()
	for digest, leaf := range held {
		if a.admits(name, leaf) != nil {
			a.end(digest)
		}
	}
}
