package certificates

import (
	"context"
	"crypto/x509"
	"net"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	api "github.com/kemudi/kemudi/internal/api/certificates"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/controller"
	"github.com/kemudi/kemudi/internal/resource"
)

// ServingApproving approves requests of node agents for the certificates that they serve
// with, if these are for nothing but the agent's own node: its name, and the names and
// addresses that its Node says. What it does not approve it leaves to others.
var ServingApproving = controller.New(controller.Spec[*certificatesv1.CertificateSigningRequest]{
	Name: "kubelet-serving-approving-controller",
	For:  api.CertificateSigningRequests,
	Watches: []controller.Watch{{ // an agent may ask before its Node says the new address
		Def: core.Nodes.Def, Keys: servingRequests,
		Same: func(before, after resource.Object) bool {
			return slices.Equal(before.(*corev1.Node).Status.Addresses, after.(*corev1.Node).Status.Addresses)
		},
	}},
	Writes: []controller.Permission{{Verb: "update", Def: api.CertificateSigningRequests.Def, Sub: "approval"}},
	Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{certificatesv1.GroupName}, Resources: []string{"signers"}, Verbs: []string{"approve"},
		ResourceNames: []string{certificatesv1.KubeletServingSignerName},
	}},
	Workers: 1, // there is little to do
	Setup: func(k *controller.Kit) controller.Reconciler[*certificatesv1.CertificateSigningRequest] {
		return &servingApprover{approval: controller.Writer(k, api.CertificateSigningRequests), nodes: controller.For(k, core.Nodes)}
	},
})

// servingRequests are the requests of a node that nobody has decided about.
func servingRequests(k *controller.Kit, obj resource.Object) (names []string) {
	for _, r := range controller.For(k, api.CertificateSigningRequests).List("", nil) {
		if undecided(r) && r.Spec.Username == nodeUser+obj.GetName() {
			names = append(names, r.Name)
		}
	}
	return names
}

func undecided(r *certificatesv1.CertificateSigningRequest) bool {
	return r.Spec.SignerName == certificatesv1.KubeletServingSignerName && len(r.Status.Certificate) == 0 &&
		!has(r, certificatesv1.CertificateApproved) && !has(r, certificatesv1.CertificateDenied)
}

type servingApprover struct {
	approval client.Client[*certificatesv1.CertificateSigningRequest]
	nodes    controller.Client[*corev1.Node]
}

// Reconcile approves a request that nobody has decided about.
func (a *servingApprover) Reconcile(ctx context.Context, r *certificatesv1.CertificateSigningRequest) (controller.Next, error) {
	if !undecided(r) {
		return controller.Done, nil
	}
	req, err := parse(r)
	if err != nil || kubeletServing(req, r.Spec.Usages) != nil || !ownServing(r, req) {
		return controller.Done, nil // somebody else's to decide
	}
	node, ok := a.nodes.Get("", strings.TrimPrefix(req.Subject.CommonName, nodeUser))
	if !ok || !names(node, req) {
		return controller.Done, nil // until the Node says so
	}
	return controller.Done, conclude(ctx, a.approval, r, approved("Auto approving kubelet serving certificate: it is for the names and addresses of its node alone."))
}

// ownServing says whether a node asks for itself.
func ownServing(r *certificatesv1.CertificateSigningRequest, req *x509.CertificateRequest) bool {
	return r.Spec.Username == req.Subject.CommonName && slices.Contains(r.Spec.Groups, user.NodesGroup)
}

// names says whether all hosts of a request are the node's.
func names(node *corev1.Node, req *x509.CertificateRequest) bool {
	dns, ips := []string{node.Name}, []net.IP{}
	for _, a := range node.Status.Addresses {
		switch a.Type {
		case corev1.NodeInternalIP, corev1.NodeExternalIP:
			if ip := net.ParseIP(a.Address); ip != nil {
				ips = append(ips, ip)
			}
		case corev1.NodeHostName, corev1.NodeInternalDNS, corev1.NodeExternalDNS:
			dns = append(dns, a.Address)
		}
	}
	for _, name := range req.DNSNames {
		if !slices.Contains(dns, name) {
			return false
		}
	}
	for _, ip := range req.IPAddresses {
		if !slices.ContainsFunc(ips, ip.Equal) {
			return false
		}
	}
	return true
}
