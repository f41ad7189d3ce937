package core

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	eventsv1beta1 "k8s.io/api/events/v1beta1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/kemudi/kemudi/internal/api/core/check"
	"github.com/kemudi/kemudi/internal/resource"
)

// Events is what happened to objects, kept for an hour. They have a second home
// in events.k8s.io, where the fields have other names.
var Events = resource.Define(resource.Spec[*corev1.Event]{
	Names:    resource.Names{Version: "v1", Kind: "Event", Plural: "events", Short: []string{"ev"}, Namespaced: true},
	Update:   resource.UpdateCreates,
	Validate: func(e, old *corev1.Event, errs *resource.Errors) { validateEvent(e, "reportingComponent", errs) },
	TTL:      func(*corev1.Event) time.Duration { return time.Hour },
	Deletion: resource.Deletion[*corev1.Event]{NoDependents: true},
	Columns:  eventColumns, Ageless: true,
	Fields: eventFields,
	Versions: []resource.Version[*corev1.Event]{
		{
			Group: "events.k8s.io", Version: "v1", Validate: validateNewEvent,
			New:  func() resource.Object { return &eventsv1.Event{} },
			To:   func(obj resource.Object) (*corev1.Event, error) { return fromEventsV1(obj.(*eventsv1.Event)), nil },
			From: func(e *corev1.Event) (resource.Object, error) { return toEventsV1(e), nil },
		},
		{
			Group: "events.k8s.io", Version: "v1beta1",
			New: func() resource.Object { return &eventsv1beta1.Event{} },
			To: func(obj resource.Object) (*corev1.Event, error) {
				e, err := resource.Recode[*eventsv1.Event](obj.(*eventsv1beta1.Event))
				if err != nil {
					return nil, err
				}
				return fromEventsV1(e), nil
			},
			From: func(e *corev1.Event) (resource.Object, error) {
				return resource.Recode[*eventsv1beta1.Event](toEventsV1(e))
			},
			Deprecated: "events.k8s.io/v1beta1 Event is deprecated in v1.22+, unavailable in v1.25+",
		},
	},
})

// The longest values of an event's fields.
const (
	eventNameLimit    = 128 // action, reason, reportingInstance
	eventMessageLimit = 1024
)

// validateEvent checks an event. One that has an eventTime is of the new kind and
// must say who reports what. reporter is the name of the field that says who.
func validateEvent(e *corev1.Event, reporter string, errs *resource.Errors) {
	about := e.InvolvedObject.Namespace
	if e.EventTime.IsZero() {
		clusterWide := about == "" && (e.Namespace == "" || e.Namespace == metav1.NamespaceDefault)
		if about != e.Namespace && !clusterWide {
			errs.Invalid("involvedObject.namespace", about, "does not match event.namespace")
		}
		return
	}
	if about == "" && e.Namespace != metav1.NamespaceDefault && e.Namespace != metav1.NamespaceSystem {
		errs.Invalid("involvedObject.namespace", about, "does not match event.namespace")
	}
	check.Required(errs, reporter, e.ReportingController)
	check.QualifiedName(errs, reporter, e.ReportingController)
	for _, f := range []struct{ path, value string }{
		{"reportingInstance", e.ReportingInstance}, {"action", e.Action}, {"reason", e.Reason},
	} {
		check.Required(errs, f.path, f.value)
		if len(f.value) > eventNameLimit {
			errs.Invalid(f.path, "", fmt.Sprintf("can have at most %v characters", eventNameLimit))
		}
	}
	if len(e.Message) > eventMessageLimit {
		errs.Invalid("message", "", fmt.Sprintf("can have at most %v characters", eventMessageLimit))
	}
}

// validateNewEvent checks an event that is written through events.k8s.io/v1: it
// has no fields of the old kind, and changes in its series only.
func validateNewEvent(e, old *corev1.Event, errs *resource.Errors) {
	validateEvent(e, "reportingController", errs)
	if old == nil || !equality.Semantic.DeepEqual(e.Series, old.Series) {
		validateEventSeries(e.Series, errs)
	}
	if old != nil {
		validateEventChange(e, old, errs)
		return
	}
	if e.EventTime.IsZero() {
		errs.Required("eventTime", "")
	}
	if e.Type != corev1.EventTypeNormal && e.Type != corev1.EventTypeWarning {
		errs.Invalid("type", "", fmt.Sprintf("has invalid value: %v", e.Type))
	}
	if !e.FirstTimestamp.IsZero() {
		errs.Invalid("firstTimestamp", "", "needs to be unset")
	}
	if !e.LastTimestamp.IsZero() {
		errs.Invalid("lastTimestamp", "", "needs to be unset")
	}
	if e.Count != 0 {
		errs.Invalid("count", "", "needs to be unset")
	}
	if e.Source != (corev1.EventSource{}) {
		errs.Invalid("source", "", "needs to be unset")
	}
}

// validateEventSeries checks how often an event of the new kind has happened: one that happened once
// has no series.
func validateEventSeries(s *corev1.EventSeries, errs *resource.Errors) {
	if s == nil {
		return
	}
	if s.Count < 2 {
		errs.Invalid("series.count", "", "should be at least 2")
	}
	if s.LastObservedTime.IsZero() {
		errs.Required("series.lastObservedTime", "")
	}
}

func validateEventChange(e, old *corev1.Event, errs *resource.Errors) {
	for _, f := range []struct {
		path     string
		now, was any
	}{
		{"involvedObject", e.InvolvedObject, old.InvolvedObject},
		{"reason", e.Reason, old.Reason},
		{"message", e.Message, old.Message},
		{"source", e.Source, old.Source},
		{"firstTimestamp", e.FirstTimestamp, old.FirstTimestamp},
		{"lastTimestamp", e.LastTimestamp, old.LastTimestamp},
		{"count", e.Count, old.Count},
		{"type", e.Type, old.Type},
		{"eventTime", e.EventTime, old.EventTime},
		{"action", e.Action, old.Action},
		{"related", e.Related, old.Related},
		{"reportingController", e.ReportingController, old.ReportingController},
		{"reportingInstance", e.ReportingInstance, old.ReportingInstance},
	} {
		if !equality.Semantic.DeepEqual(f.now, f.was) {
			errs.Immutable(f.path, f.now)
		}
	}
}

func fromEventsV1(e *eventsv1.Event) *corev1.Event {
	out := &corev1.Event{
		ObjectMeta: e.ObjectMeta, InvolvedObject: e.Regarding, Related: e.Related,
		Reason: e.Reason, Message: e.Note, Type: e.Type, Action: e.Action, EventTime: e.EventTime,
		ReportingController: e.ReportingController, ReportingInstance: e.ReportingInstance,
		Source: e.DeprecatedSource, FirstTimestamp: e.DeprecatedFirstTimestamp,
		LastTimestamp: e.DeprecatedLastTimestamp, Count: e.DeprecatedCount,
	}
	if e.Series != nil {
		out.Series = &corev1.EventSeries{Count: e.Series.Count, LastObservedTime: e.Series.LastObservedTime}
	}
	return out
}

func toEventsV1(e *corev1.Event) *eventsv1.Event {
	out := &eventsv1.Event{
		ObjectMeta: e.ObjectMeta, Regarding: e.InvolvedObject, Related: e.Related,
		Reason: e.Reason, Note: e.Message, Type: e.Type, Action: e.Action, EventTime: e.EventTime,
		ReportingController: e.ReportingController, ReportingInstance: e.ReportingInstance,
		DeprecatedSource: e.Source, DeprecatedFirstTimestamp: e.FirstTimestamp,
		DeprecatedLastTimestamp: e.LastTimestamp, DeprecatedCount: e.Count,
	}
	if e.Series != nil {
		out.Series = &eventsv1.EventSeries{Count: e.Series.Count, LastObservedTime: e.Series.LastObservedTime}
	}
	return out
}

var eventFields = map[string]func(*corev1.Event) string{
	"involvedObject.kind":            func(e *corev1.Event) string { return e.InvolvedObject.Kind },
	"involvedObject.namespace":       func(e *corev1.Event) string { return e.InvolvedObject.Namespace },
	"involvedObject.name":            func(e *corev1.Event) string { return e.InvolvedObject.Name },
	"involvedObject.uid":             func(e *corev1.Event) string { return string(e.InvolvedObject.UID) },
	"involvedObject.apiVersion":      func(e *corev1.Event) string { return e.InvolvedObject.APIVersion },
	"involvedObject.resourceVersion": func(e *corev1.Event) string { return e.InvolvedObject.ResourceVersion },
	"involvedObject.fieldPath":       func(e *corev1.Event) string { return e.InvolvedObject.FieldPath },
	"regarding.kind":                 func(e *corev1.Event) string { return e.InvolvedObject.Kind },
	"regarding.namespace":            func(e *corev1.Event) string { return e.InvolvedObject.Namespace },
	"regarding.name":                 func(e *corev1.Event) string { return e.InvolvedObject.Name },
	"regarding.uid":                  func(e *corev1.Event) string { return string(e.InvolvedObject.UID) },
	"regarding.apiVersion":           func(e *corev1.Event) string { return e.InvolvedObject.APIVersion },
	"regarding.resourceVersion":      func(e *corev1.Event) string { return e.InvolvedObject.ResourceVersion },
	"regarding.fieldPath":            func(e *corev1.Event) string { return e.InvolvedObject.FieldPath },
	"reason":                         func(e *corev1.Event) string { return e.Reason },
	"reportingComponent":             func(e *corev1.Event) string { return e.ReportingController },
	"reportingController":            func(e *corev1.Event) string { return e.ReportingController },
	"source":                         eventComponent,
	"type":                           func(e *corev1.Event) string { return e.Type },
}

func eventComponent(e *corev1.Event) string {
	if e.Source.Component != "" {
		return e.Source.Component
	}
	return e.ReportingController
}

var eventColumns = []resource.Column[*corev1.Event]{
	{
		Name: "Last Seen", Description: corev1.Event{}.SwaggerDoc()["lastTimestamp"],
		Value: func(e *corev1.Event) any { return ago(lastSeen(e)) },
	},
	{
		Name: "Type", Description: corev1.Event{}.SwaggerDoc()["type"],
		Value: func(e *corev1.Event) any { return e.Type },
	},
	{
		Name: "Reason", Description: corev1.Event{}.SwaggerDoc()["reason"],
		Value: func(e *corev1.Event) any { return e.Reason },
	},
	{
		Name: "Object", Description: corev1.Event{}.SwaggerDoc()["involvedObject"],
		Value: func(e *corev1.Event) any { return eventObject(e) },
	},
	{
		Name: "Subobject", Priority: 1, Description: corev1.ObjectReference{}.SwaggerDoc()["fieldPath"],
		Value: func(e *corev1.Event) any { return e.InvolvedObject.FieldPath },
	},
	{
		Name: "Source", Priority: 1, Description: corev1.Event{}.SwaggerDoc()["source"],
		Value: func(e *corev1.Event) any { return eventSource(e) },
	},
	{
		Name: "Message", Description: corev1.Event{}.SwaggerDoc()["message"],
		Value: func(e *corev1.Event) any { return strings.TrimSpace(e.Message) },
	},
	{
		Name: "First Seen", Priority: 1, Description: corev1.Event{}.SwaggerDoc()["firstTimestamp"],
		Value: func(e *corev1.Event) any { return ago(firstSeen(e)) },
	},
	{
		Name: "Count", Priority: 1, Description: corev1.Event{}.SwaggerDoc()["count"],
		Value: func(e *corev1.Event) any { return int64(eventCount(e)) },
	},
	{
		Name: "Name", Priority: 1, Format: "name", Description: metav1.ObjectMeta{}.SwaggerDoc()["name"],
		Value: func(e *corev1.Event) any { return e.Name },
	},
}

func ago(t time.Time) string {
	if t.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(time.Since(t))
}

func firstSeen(e *corev1.Event) time.Time {
	if e.FirstTimestamp.IsZero() {
		return e.EventTime.Time
	}
	return e.FirstTimestamp.Time
}

func lastSeen(e *corev1.Event) time.Time {
	switch {
	case e.Series != nil:
		return e.Series.LastObservedTime.Time
	case e.LastTimestamp.IsZero():
		return firstSeen(e)
	}
	return e.LastTimestamp.Time
}

func eventCount(e *corev1.Event) int32 {
	if e.Series != nil {
		return e.Series.Count
	}
	return max(e.Count, 1)
}

func eventObject(e *corev1.Event) string {
	kind := strings.ToLower(e.InvolvedObject.Kind)
	if e.InvolvedObject.Name == "" {
		return kind
	}
	return kind + "/" + e.InvolvedObject.Name
}

func eventSource(e *corev1.Event) string {
	instance := e.Source.Host
	if instance == "" {
		instance = e.ReportingInstance
	}
	if instance == "" {
		return eventComponent(e)
	}
	return eventComponent(e) + ", " + instance
}
