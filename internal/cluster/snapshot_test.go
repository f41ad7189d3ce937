package cluster

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/apiserver/request"
	"github.com/kemudi/kemudi/internal/store"
	"github.com/kemudi/kemudi/internal/store/etcd"
)

// checkSnapshot gets the store of a server of several: all that was written, by administrators alone.
func checkSnapshot(t *testing.T, s *oneServer) {
	t.Helper()
	api := s.client()
	data, err := api.CoreV1().RESTClient().Get().AbsPath(request.SnapshotPath).Do(t.Context()).Raw()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "snapshot.db")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if ok, err := etcd.IsSnapshot(file); err != nil || !ok {
		t.Fatalf("got %d bytes that are no snapshot, %v", len(data), err)
	}
	list, err := etcd.ReadSnapshot(file, "/registry/configmaps/default/")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"before", "second", "third"} {
		if !slices.ContainsFunc(list, func(kv store.KV) bool { return strings.HasSuffix(kv.Key, "/"+name) }) {
			t.Errorf("the snapshot has %d config maps, but not %s", len(list), name)
		}
	}

	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "paths"}, Rules: []rbacv1.PolicyRule{{NonResourceURLs: []string{"*"}, Verbs: []string{"*"}}}}
	bound := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "paths"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "paths"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "eve"}},
	}
	if _, err := api.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := api.RbacV1().ClusterRoleBindings().Create(t.Context(), bound, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	got, err := api.CoreV1().RESTClient().Get().AbsPath(request.SnapshotPath).SetHeader("Impersonate-User", "eve").Do(t.Context()).Raw()
	if !apierrors.IsForbidden(err) || !strings.Contains(string(got), "members of the group system:masters") {
		t.Errorf("who has the right to all paths got %d bytes, %v", len(got), err)
	}
}
