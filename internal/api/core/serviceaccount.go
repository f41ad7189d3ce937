package core

import (
	"slices"
	"strconv"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kemudi/kemudi/internal/resource"
)

// ServiceAccounts is the identities of programs that run in pods.
var ServiceAccounts = resource.Define(resource.Spec[*corev1.ServiceAccount]{
	Names:    resource.Names{Version: "v1", Kind: "ServiceAccount", Plural: "serviceaccounts", Short: []string{"sa"}, Namespaced: true},
	Deletion: resource.Deletion[*corev1.ServiceAccount]{AnswersDeleted: true},
	Prepare:  prepareServiceAccount,
	Warn: func(a, _ *corev1.ServiceAccount) []string {
		if _, there := a.Annotations[OnlyOwnSecrets]; there {
			return []string{"metadata.annotations[" + OnlyOwnSecrets + "]: deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets"}
		}
		return nil
	},
	Columns: []resource.Column[*corev1.ServiceAccount]{{
		Name: "Secrets", Description: corev1.ServiceAccount{}.SwaggerDoc()["secrets"],
		Value: func(a *corev1.ServiceAccount) any { return int64(len(a.Secrets)) },
	}},
	Sub: []resource.Sub[*corev1.ServiceAccount]{{
		Name: "token", Verbs: resource.Create, Handler: resource.HandleTokenRequest,
		Body: &resource.Body{
			Group: "authentication.k8s.io", Version: "v1", Kind: "TokenRequest",
			New: func() runtime.Object { return &authenticationv1.TokenRequest{} },
		},
	}},
})

// OnlyOwnSecrets is the annotation that says that an account's pods may use no secrets but those that it names.
const OnlyOwnSecrets = "kubernetes.io/enforce-mountable-secrets"

// LimitsSecrets reports whether an account says so.
func LimitsSecrets(a *corev1.ServiceAccount) bool {
	yes, err := strconv.ParseBool(a.Annotations[OnlyOwnSecrets])
	return err == nil && yes
}

// prepareServiceAccount reduces references to secrets to names: others say
// nothing, as the secrets must be in the same namespace.
func prepareServiceAccount(a, _ *corev1.ServiceAccount) {
	a.Secrets = slices.Clone(a.Secrets)
	for i := range a.Secrets {
		a.Secrets[i] = corev1.ObjectReference{Name: a.Secrets[i].Name}
	}
}
