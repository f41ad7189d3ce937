package audit

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// Request is what is told of one request. The methods of nil do nothing (U1). They are
// called in the order in which they stand here; Annotate at any time, by any goroutine.
type Request struct {
	log  *Log
	rule *rule // set by Decide; nil: not decided yet

	long bool // that the answer has begun is told

	mu struct {
		sync.Mutex
		event   auditv1.Event
		started bool
		spent   [layers]time.Duration
	}
}

// requestKey finds the request in a context.
type requestKey struct{}

// NewContext is a context in which [Annotate] finds the request.
func NewContext(ctx context.Context, r *Request) context.Context {
	return context.WithValue(ctx, requestKey{}, r)
}

// Annotate notes something of the request that ctx is of, if that is audited.
func Annotate(ctx context.Context, key, value string) {
	r, _ := ctx.Value(requestKey{}).(*Request)
	r.Annotate(key, value)
}

// Annotate notes something of the request. A key has the value that it was given first.
func (r *Request) Annotate(key, value string) {
	if r == nil || r.rule != nil && !r.rule.tells(auditv1.LevelMetadata) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	notes := r.mu.event.Annotations
	if notes == nil {
		notes = map[string]string{}
		r.mu.event.Annotations = notes
	}
	if _, there := notes[key]; !there {
		notes[key] = value
	}
}

// Decide asks the policy about the request as its user makes it, and reports whether
// anything is to be told of it. If not, no other method is to be called.
func (r *Request) Decide(a authorizer.Attributes) bool {
	if r == nil {
		return false
	}
	r.rule = r.log.policy.of(a)
	r.log.told.metrics.levels[r.rule.level].Inc()
	if !r.rule.tells(auditv1.LevelMetadata) {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	e := &r.mu.event
	e.Level, e.Verb = r.rule.level, a.GetVerb()
	if u := a.GetUser(); u != nil {
		e.User = *userInfo(u)
	}
	if a.IsResourceRequest() {
		e.ObjectRef = &auditv1.ObjectReference{
			Namespace: a.GetNamespace(), Name: a.GetName(), Resource: a.GetResource(), Subresource: a.GetSubresource(),
			APIGroup: a.GetAPIGroup(), APIVersion: a.GetAPIVersion(),
		}
	}
	return true
}

func userInfo(u user.Info) *authenticationv1.UserInfo {
	info := &authenticationv1.UserInfo{Username: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups()}
	for key, values := range u.GetExtra() {
		if info.Extra == nil {
			info.Extra = map[string]authenticationv1.ExtraValue{}
		}
		info.Extra[key] = values
	}
	return info
}

// Origin is from where a request comes.
type Origin struct {
	URI     string
	Agent   string
	Sources []net.IP
	Long    bool // it stays open for as long as it likes: when its answer begins is told
}

// maxAgent is how much is told of a client's user agent.
const maxAgent = 1024

func (r *Request) setOrigin(o Origin) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.long = o.Long
	e := &r.mu.event
	e.RequestURI, e.UserAgent = o.URI, o.Agent
	if len(o.Agent) > maxAgent {
		e.UserAgent = o.Agent[:maxAgent] + "...TRUNCATED"
	}
	for _, ip := range o.Sources {
		e.SourceIPs = append(e.SourceIPs, ip.String())
	}
}

// Received tells that the request is there. If it reports false, the request is to be
// refused, and no other method called.
func (r *Request) Received(o Origin) (ok bool) {
	if r == nil {
		return true
	}
	r.setOrigin(o)
	if r.tell(auditv1.StageRequestReceived) {
		return true
	}
	r.log.told.metrics.rejected.Inc()
	return false
}

// Refused is for requests that end before it is known whose they are: of those only the
// answer is told, by [Request.Started].
func (r *Request) Refused(o Origin) {
	if r == nil {
		return
	}
	o.Long = true
	r.setOrigin(o)
}

// Impersonated says whom the request acts for, and by which verb it may, if not by the old one.
func (r *Request) Impersonated(as user.Info, constraint string) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.event.ImpersonatedUser = userInfo(as)
	if constraint != "" {
		r.mu.event.AuthenticationMetadata = &auditv1.AuthenticationMetadata{ImpersonationConstraint: constraint}
	}
}

// Decided says what was decided about the request, and why.
func (r *Request) Decided(d authorizer.Decision, reason string) {
	if r == nil {
		return
	}
	decision := "forbid"
	if d == authorizer.DecisionAllow {
		decision = "allow"
	}
	r.Annotate("authorization.k8s.io/decision", decision)
	r.Annotate("authorization.k8s.io/reason", reason)
}

// Deprecated says that the request is of a version that is deprecated, and which release
// is without it, as "1.22"; empty: nobody knows.
func (r *Request) Deprecated(removed string) {
	if r == nil {
		return
	}
	r.Annotate("k8s.io/deprecated", "true")
	if removed != "" {
		r.Annotate("k8s.io/removed-release", removed)
	}
}

// About says of which object the request is, by the one that it sends, as far as that is
// not known.
func (r *Request) About(obj metav1.Object) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.event.ObjectRef == nil {
		return
	}
	ref := *r.mu.event.ObjectRef
	if ref.Namespace == "" {
		ref.Namespace = obj.GetNamespace()
	}
	if ref.Name == "" {
		ref.Name = obj.GetName()
	}
	ref.UID, ref.ResourceVersion = obj.GetUID(), obj.GetResourceVersion()
	r.mu.event.ObjectRef = &ref
}

// TellsRequest reports whether what was sent is told.
func (r *Request) TellsRequest() bool {
	return r != nil && r.rule != nil && r.rule.tells(auditv1.LevelRequest)
}

// TellsAnswer reports whether what is answered is told.
func (r *Request) TellsAnswer() bool {
	return r != nil && r.rule != nil && r.rule.tells(auditv1.LevelRequestResponse)
}

// SentPatch says what patch was sent, in JSON.
func (r *Request) SentPatch(doc []byte) {
	if r.TellsRequest() {
		r.sent(doc)
	}
}

// Sent says what object was sent, in JSON.
func (r *Request) Sent(doc []byte) {
	if r.TellsRequest() {
		r.sent(r.shown(doc))
	}
}

func (r *Request) sent(doc []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.event.RequestObject = &runtime.Unknown{Raw: doc, ContentType: runtime.ContentTypeJSON}
}

// Answered says what object is answered with, in JSON: an object, a list or a table.
func (r *Request) Answered(doc []byte) {
	if !r.TellsAnswer() {
		return
	}
	doc = r.shown(doc)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.event.ResponseObject = &runtime.Unknown{Raw: doc, ContentType: runtime.ContentTypeJSON}
}

// AnsweredStatus says that the answer is a Status, as all errors are.
func (r *Request) AnsweredStatus(s *metav1.Status) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.event.ResponseStatus = &metav1.Status{Status: s.Status, Message: s.Message, Reason: s.Reason, Details: s.Details, Code: s.Code}
}

// Started tells that the answer has begun, if the request is one of which that is told.
func (r *Request) Started(code int) {
	if r == nil || !r.long {
		return
	}
	r.mu.Lock()
	first := !r.mu.started
	r.mu.started = true
	if first {
		r.setCodeLocked(code)
	}
	r.mu.Unlock()
	if first {
		r.tell(auditv1.StageResponseStarted)
	}
}

// setCodeLocked notes the code of the answer.
func (r *Request) setCodeLocked(code int) {
	status := metav1.Status{}
	if was := r.mu.event.ResponseStatus; was != nil {
		status = *was
	}
	status.Code = int32(code)
	r.mu.event.ResponseStatus = &status
}

// End tells how the request has ended. It must be deferred itself: a panic is told, and
// goes on. code is that of the answer, 0 if there was none.
func (r *Request) End(code *int) {
	if r == nil {
		return
	}
	if p := recover(); p != nil {
		r.Panicked(p)
		panic(p)
	}
	r.Complete(*code)
}

// Panicked tells that the request has ended by a panic.
func (r *Request) Panicked(p any) {
	r.mu.Lock()
	r.mu.event.ResponseStatus = &metav1.Status{
		Status: metav1.StatusFailure, Reason: metav1.StatusReasonInternalError, Code: http.StatusInternalServerError,
		Message: fmt.Sprintf("APIServer panic'd: %v", p),
	}
	r.mu.Unlock()
	r.tell(auditv1.StagePanic)
}

// Complete tells that the request has been answered, with a code; 0: there was no answer.
func (r *Request) Complete(code int) {
	r.mu.Lock()
	silent := code == 0
	if silent {
		r.mu.event.ResponseStatus = &metav1.Status{Code: http.StatusOK, Status: metav1.StatusSuccess, Message: "Connection closed early"}
	} else {
		r.setCodeLocked(code)
	}
	silent = silent && r.long && !r.mu.started
	r.mu.Unlock()
	if silent {
		r.tell(auditv1.StageResponseStarted)
	}
	r.annotateSlow()
	r.tell(auditv1.StageResponseComplete)
}

// tell tells the request as it is at a stage, unless the policy leaves that out.
func (r *Request) tell(stage auditv1.Stage) (ok bool) {
	if slices.Contains(r.rule.omit, stage) {
		return true
	}
	r.mu.Lock()
	e := r.mu.event
	e.Annotations = maps.Clone(e.Annotations)
	r.mu.Unlock()
	e.Stage, e.StageTimestamp = stage, e.RequestReceivedTimestamp
	if stage != auditv1.StageRequestReceived {
		e.StageTimestamp = metav1.NewMicroTime(time.Now())
	}
	return r.log.tell(&e)
}
