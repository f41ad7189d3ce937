package clients

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	suite "k8s.io/pod-security-admission/test"

	"github.com/kemudi/kemudi/test/wait"
)

// The suite makes pods and Deployments by dry runs, those that a level lets pass and those
// that it does not, for every version of the Pod Security Standards in which something changed.
func TestPodSecurityPassesItsOwnSuite(t *testing.T) {
	suite.Run(t, suite.Options{ClientConfig: theServer.config, CreateNamespace: func(c kubernetes.Interface, name string, labels map[string]string) (ns *corev1.Namespace, err error) {
		// The one of a run before this goes in the background.
		wait.Until(t, func() error {
			ns, err = suite.DefaultCreateNamespace(c, name, labels)
			return err
		})
		return ns, err
	}})
}
