package certificates

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/auth/authn"
	"github.com/kemudi/kemudi/internal/auth/pki"
)

// joining is a machine that was let in, by a request, and has not registered yet.
type joining struct {
	request, pin string
	at           time.Time
}

// registersWithin is for how long the name of a machine that was let in is kept for it,
// until its Node is there.
const registersWithin = 10 * time.Minute

// taken says why a machine with the key of that pin must not become the node of that name;
// empty if it may. The same key is the same machine. So is another key when the node
// is not heard of: the machine was installed anew.
func (a *approver) taken(name, pin string, now time.Time) string {
	if node, ok := a.nodes.Get("", name); ok {
		if !core.NodeIsReady(node) || slices.Contains(authn.NodeKeys(node), pin) {
			return ""
		}
		return fmt.Sprintf("the node %s is in the cluster, and it is another machine: this one has another key. Give this machine a name of its own (--node-name). If it is to take that one's place, end that machine and delete its node first: kubectl delete node %s", name, name)
	}
	for _, r := range a.requests.List("", nil) {
		if other, pinned, ok := admitted(r); ok && other == name && r.Annotations[authn.AnnotationRegistered] == "" {
			if at := r.CreationTimestamp.Time; at.After(a.joining[name].at) {
				a.joining[name] = joining{r.Name, pinned, at}
			}
		}
	}
	maps.DeleteFunc(a.joining, func(_ string, j joining) bool {
		r, ok := a.requests.Get("", j.request)
		return !ok || r.Annotations[authn.AnnotationRegistered] != "" || now.Sub(j.at) > registersWithin
	})
	if j, ok := a.joining[name]; ok && j.pin != pin {
		return fmt.Sprintf("another machine has joined as the node %s just now, with another key: give this one a name of its own (--node-name). If that other one has gone, its name is free from %s on",
			name, j.at.Add(registersWithin).UTC().Format(time.RFC3339))
	}
	return ""
}

// admitted says which node a request has made known, and by the key of which pin; ok is
// false for other requests and those that were not signed.
func admitted(r *certificatesv1.CertificateSigningRequest) (node, pin string, ok bool) {
	if r.Spec.SignerName != certificatesv1.KubeAPIServerClientKubeletSignerName || len(r.Status.Certificate) == 0 {
		return "", "", false
	}
	req, err := parse(r)
	if err != nil {
		return "", "", false
	}
	if node, ok = strings.CutPrefix(req.Subject.CommonName, nodeUser); !ok {
		return "", "", false
	}
	pin, err = pki.PinOf(req.PublicKey)
	return node, pin, err == nil
}
