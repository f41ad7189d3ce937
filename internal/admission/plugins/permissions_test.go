package plugins

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"slices"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kemudi/kemudi/internal/admission"
	"github.com/kemudi/kemudi/internal/admission/admissiontest"
	"github.com/kemudi/kemudi/internal/api/rbac"
	authrbac "github.com/kemudi/kemudi/internal/auth/rbac"
)

// allow is an authorizer that knows who may do what: "alice approve signers/x".
type allow []string

func (w allow) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	what := a.GetResource()
	if a.GetSubresource() != "" {
		what += "/" + a.GetSubresource()
	}
	if slices.Contains(w, a.GetUser().GetName()+" "+a.GetVerb()+" "+what+" "+a.GetName()) {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

func csr(signer string) string {
	return "CertificateSigningRequest: {metadata: {name: x}, spec: {signerName: " + signer + "}}"
}

func TestSignersAreForThoseWhoMay(t *testing.T) {
	o := admissiontest.New(t).Options()
	o.Authorizer = allow{"alice approve signers example.com/a", "bob approve signers example.com/*", "alice sign signers example.com/a", "alice attest signers example.com/a"}
	bundle := "ClusterTrustBundle: {metadata: {name: 'example.com:a:x'%s}, spec: {signerName: example.com/a, trustBundle: %s}}"
	const attest = `clustertrustbundles.certificates.k8s.io "example.com:a:x" is forbidden: user not permitted to attest for signerName "example.com/a"`
	signed := "CertificateSigningRequest: {metadata: {name: x}, spec: {signerName: example.com/%s}, status: {certificate: YWJj}}"
	const prefix = `certificatesigningrequests.certificates.k8s.io "x" is forbidden: user not permitted to `
	for _, q := range []struct{ name, plugin, who, sub, now, old, want string }{
		{"approve", "CertificateApproval", "alice", "approval", csr("example.com/a"), csr("example.com/a"), ""},
		{"approve by domain", "CertificateApproval", "bob", "approval", csr("example.com/a"), csr("example.com/a"), ""},
		{"approve for another signer", "CertificateApproval", "alice", "approval", csr("example.com/b"), csr("example.com/b"), prefix + `approve requests with signerName "example.com/b"`},
		{"update that approves nothing", "CertificateApproval", "eve", "", csr("example.com/b"), csr("example.com/b"), ""},
		{"sign", "CertificateSigning", "alice", "status", fmt.Sprintf(signed, "a"), csr("example.com/a"), ""},
		{"sign for another signer", "CertificateSigning", "alice", "status", fmt.Sprintf(signed, "b"), csr("example.com/b"), prefix + `sign requests with signerName "example.com/b"`},
		{"attest", "ClusterTrustBundleAttest", "alice", "", fmt.Sprintf(bundle, "", "a"), "", ""},
		{"attest for a signer of others", "ClusterTrustBundleAttest", "eve", "", fmt.Sprintf(bundle, "", "a"), "", attest},
		{"change whom to believe", "ClusterTrustBundleAttest", "eve", "", fmt.Sprintf(bundle, "", "b"), fmt.Sprintf(bundle, "", "a"), attest},
		{"change labels of a bundle", "ClusterTrustBundleAttest", "eve", "", fmt.Sprintf(bundle, ", labels: {a: b}", "a"), fmt.Sprintf(bundle, "", "a"), ""},
		{"bundle of no signer", "ClusterTrustBundleAttest", "eve", "", "ClusterTrustBundle: {metadata: {name: x}}", "", ""},
		{"status without a change", "CertificateSigning", "eve", "status", csr("example.com/a"), csr("example.com/a"), ""},
	} {
		a := admissiontest.Request(t, q.now, q.old)
		a.Sub, a.User = q.sub, &user.DefaultInfo{Name: q.who}
		if got := admissiontest.Run(t, only(t, o, q.plugin), a); got != q.want {
			t.Errorf("%s: got %s, want %s", q.name, got, q.want)
		}
	}
}

func TestMastersAreNotForRequest(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(signer, group string) *admission.Attributes {
		der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "eve", Organization: []string{group}}}, key)
		if err != nil {
			t.Fatal(err)
		}
		a := admissiontest.Request(t, csr(signer), "")
		a.User = &user.DefaultInfo{Name: "alice", UID: "7", Groups: []string{"dev"}, Extra: map[string][]string{"k": {"v"}}}
		a.Object.(*certificatesv1.CertificateSigningRequest).Spec.Request = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
		return a
	}
	c, err := New(*admissiontest.New(t).Options())
	if err != nil {
		t.Fatal(err)
	}
	a := ask("kubernetes.io/kube-apiserver-client", "dev")
	if got := admissiontest.Run(t, c, a); got != "" {
		t.Errorf("usual request: got %s", got)
	}
	want := `certificatesigningrequests.certificates.k8s.io "x" is forbidden: use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed`
	if got := admissiontest.Run(t, c, ask("kubernetes.io/kube-apiserver-client", "system:masters")); got != want {
		t.Errorf("masters: got %s, want %s", got, want)
	}
	if got := admissiontest.Run(t, c, ask("example.com/own", "system:masters")); got != "" {
		t.Errorf("masters of another signer: got %s", got)
	}
}

func TestOwnerReferencesNeedPermission(t *testing.T) {
	o := admissiontest.New(t).Options()
	o.Authorizer = allow{"alice delete configmaps x", "bob delete configmaps x", "alice update deployments/finalizers web"}
	c := only(t, o, "OwnerReferencesPermissionEnforcement")
	obj := func(owner string) string {
		return "ConfigMap: {metadata: {namespace: team, name: x, ownerReferences: [" + owner + "]}}"
	}
	const plain, blocks = "{apiVersion: apps/v1, kind: Deployment, name: web}", "{apiVersion: apps/v1, kind: Deployment, name: web, blockOwnerDeletion: true}"
	const prefix = `configmaps "x" is forbidden: cannot set `
	for _, q := range []struct{ name, who, now, old, want string }{
		{"no owners", "eve", obj(""), obj(""), ""},
		{"same owners", "eve", obj(blocks), obj(blocks), ""},
		{"new object", "eve", obj(plain), "", ""},
		{"new owner", "bob", obj(plain), obj(""), ""},
		{"new owner without delete", "eve", obj(plain), obj(""), prefix + "an ownerRef on a resource you can't delete: , <nil>"},
		{"block", "alice", obj(blocks), obj(""), ""},
		{"block by a legacy version", "alice", obj("{apiVersion: extensions/v1beta1, kind: Deployment, name: web, blockOwnerDeletion: true}"), obj(""), ""},
		{"block without finalizers", "bob", obj(blocks), obj(plain), prefix + "blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: , <nil>"},
		{"block a kind that is not there", "alice", obj("{apiVersion: example.com/v1, kind: Thing, name: t, blockOwnerDeletion: true}"), "", prefix + "blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion example.com/v1 Kind Thing"},
	} {
		a := admissiontest.Request(t, q.now, q.old)
		a.User = &user.DefaultInfo{Name: q.who}
		if got := admissiontest.Run(t, c, a); got != q.want {
			t.Errorf("%s: got %s, want %s", q.name, got, q.want)
		}
	}
}

func TestRolesCannotGrantMoreThanTheirWriterHas(t *testing.T) {
	w := admissiontest.New(t, "ClusterRole: {metadata: {name: view}, rules: [{verbs: [get], apiGroups: [''], resources: [pods]}]}",
		"ClusterRoleBinding: {metadata: {name: alice}, roleRef: {kind: ClusterRole, name: view}, subjects: [{kind: User, name: alice}]}")
	o := w.Options()
	o.Rules = authrbac.New(authrbac.Caches{
		Roles: w.Caches[rbac.Roles.Def], ClusterRoles: w.Caches[rbac.ClusterRoles.Def],
		RoleBindings: w.Caches[rbac.RoleBindings.Def], ClusterRoleBindings: w.Caches[rbac.ClusterRoleBindings.Def],
	})
	o.Authorizer = o.Rules
	c := only(t, o, "RBACEscalation")
	if got := admissiontest.Run(t, c, admissiontest.Request(t, "Role: {metadata: {namespace: team, name: r}, rules: [{verbs: [get], apiGroups: [''], resources: [pods]}]}", "")); got != "" {
		t.Errorf("what one has: got %s", got)
	}
	want := `roles.rbac.authorization.k8s.io "r" is forbidden: user "alice" (groups=[]) is attempting to grant RBAC permissions not currently held:` + "\n" +
		`{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}`
	if got := admissiontest.Run(t, c, admissiontest.Request(t, "Role: {metadata: {namespace: team, name: r}, rules: [{verbs: [get], apiGroups: [''], resources: [secrets]}]}", "")); got != want {
		t.Errorf("more: got %s, want %s", got, want)
	}
}
