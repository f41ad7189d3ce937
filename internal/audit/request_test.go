package audit

import (
	"net"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

func TestNothingIsPaidForWhatIsNotAudited(t *testing.T) {
	var (
		l       *Log
		u       = &user.DefaultInfo{Name: "alice"}
		a       = &authorizer.AttributesRecord{User: u, Verb: "get"}
		obj     = &metav1.ObjectMeta{Name: "x"}
		status  = &metav1.Status{Code: 404}
		sources = []net.IP{net.IPv6loopback}
		doc     = []byte("{}")
		code    = 200
	)
	allocs := testing.AllocsPerRun(100, func() {
		r := l.New("id")
		defer r.End(&code)
		if r.Decide(a) || !r.Received(Origin{URI: "/", Agent: "x", Sources: sources}) || r.TellsRequest() || r.TellsAnswer() {
			t.Error("somebody is told")
		}
		r.Refused(Origin{URI: "/"})
		r.Annotate("key", "value")
		r.Impersonated(u, "")
		r.Decided(authorizer.DecisionAllow, "why")
		r.Deprecated("1.2")
		r.About(obj)
		r.Sent(doc)
		r.SentPatch(doc)
		r.Answered(doc)
		r.AnsweredStatus(status)
		r.Started(code)
		r.Spent(Store, 1)
	})
	if allocs != 0 {
		t.Errorf("got %v allocations, want none", allocs)
	}
	Annotate(t.Context(), "key", "value") // of no request
}
