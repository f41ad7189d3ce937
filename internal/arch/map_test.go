package arch

import (
	"fmt"
	"go/ast"
	"go/types"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kemudi/kemudi/internal/texttest"
)

// mapFile says where to find what; the parts of it that only the syntax tree knows are written here.
const mapFile = "../../docs/MAP.md"

func TestMapListsEveryMetric(t *testing.T) {
	rows := map[string]string{}
	eachProductNode(t, func(s *source, _ *ast.FuncDecl, n ast.Node) {
		if name, help := metricOf(n); name != "" {
			rows[name] = fmt.Sprintf("| %s | %s | [%s](../%s) |\n", name, strings.ReplaceAll(help, "|", "\\|"), s.path, s.path)
		}
	})
	texttest.Part(t, mapFile, "metrics", "| metric | what it is | file |\n|---|---|---|\n"+joined(rows))
}

// metricOf returns the name and help of a metric that n declares: a literal of options of the
// Prometheus library, or a call of its NewDesc.
func metricOf(n ast.Node) (name, help string) {
	switch n := n.(type) {
	case *ast.CompositeLit:
		if sel, ok := n.Type.(*ast.SelectorExpr); !ok || !strings.HasSuffix(sel.Sel.Name, "Opts") {
			return "", ""
		}
		for _, e := range n.Elts {
			kv, ok := e.(*ast.KeyValueExpr)
			if !ok {
				continue
			}
			switch key, _ := kv.Key.(*ast.Ident); {
			case key == nil:
			case key.Name == "Name":
				name = text(kv.Value)
			case key.Name == "Help":
				help = text(kv.Value)
			}
		}
	case *ast.CallExpr:
		if sel, ok := n.Fun.(*ast.SelectorExpr); ok && sel.Sel.Name == "NewDesc" && len(n.Args) >= 2 {
			name, help = text(n.Args[0]), text(n.Args[1])
		}
	}
	return name, help
}

// elsewhere has the reasons that come from afar, by the area and the call that they reach the
// recorder by. Each is a text of the product, up to what changes with the object, in brackets.
var elsewhere = map[string][]string{
	"controllers Event(e.reason)": { // of jobs
		"BackoffLimitExceeded", "Completed", "DeadlineExceeded", "FailedIndexes", "MaxFailedIndexesExceeded", "PodFailurePolicy",
		"Resumed", "Suspended", "TooManySucceededPods",
	},
	"controllers Event(r.reason)": { // of autoscalers
		"FailedGetContainerResourceMetric", "FailedGetExternalMetric", "FailedGetObjectMetric", "FailedGetPodsMetric",
		"FailedGetResourceMetric", "InvalidMetricSourceType",
	},
	"controllers Event(p.Reason)": {"AnnotationNotObeyed", "BackendNotFound", "BadCertificate", "BadPath"}, // of Ingresses
	"controllers Event(n.reason)": { // of CronJobs
		"JobAlreadyActive", "MissSchedule", "MissingJob", "SawCompletedJob", "TooManyMissedTimes", "UnexpectedJob",
		"UnknownTimeZone", "UnparseableSchedule", "UnsupportedSchedule",
	},
	"kubelet Event(reason)": {
		"NodeHasDiskPressure", "NodeHasInsufficientMemory", "NodeHasInsufficientPID", "NodeHasNoDiskPressure", "NodeHasSufficientMemory", "NodeHasSufficientPID",
	},
	"kubelet Event(n.Reason)":                 {"DNSConfigForming", "MissingClusterDNS"},
	"kubelet TellOf(cond.Type)":               {"Denied", "Failed"},
	"kubelet TellOf(warning.reason)":          {"CertificateExpired", "CertificateOverdueForRefresh"},
	"kubelet rejected(reason)":                {"AppArmor", "NodeAffinity", "NodePorts", "NodeShutdown", "OutOf[resource]", "PodOSNotSupported", "PodOSSelectorNodeLabelDoesNotMatch", "SupplementalGroupsPolicyNotSupported", "SysctlForbidden", "TaintToleration"},
	"scheduler Event(note.Reason)":            {"BindingConditionsPending"},
	`kubelet reportResize("Resize" + reason)`: {"Resize[Deferred or Infeasible]"},
}

func TestMapListsEveryReasonOfEvents(t *testing.T) {
	r := &reasons{consts: map[string]string{}, texts: map[string]bool{}, wrappers: map[string]int{"event": -2, "Event": -2}, places: map[string][]string{}, used: map[string]bool{}}
	eachProductNode(t, r.read)
	for range 2 { // what wraps a recorder may be wrapped
		eachProductNode(t, func(s *source, in *ast.FuncDecl, n ast.Node) { r.find(t, s, in, n) })
	}
	for where, list := range elsewhere {
		if !r.used[where] {
			t.Errorf("elsewhere lists %s, which is called nowhere", where)
		}
		for _, reason := range list {
			if fixed, _, _ := strings.Cut(reason, "["); !r.texts[fixed] {
				t.Errorf("elsewhere lists the reason %s, which no code has", reason)
			}
		}
	}
	rows := map[string]string{}
	for reason, files := range r.places {
		for i, f := range files {
			files[i] = fmt.Sprintf("[%s](../%s)", f, f)
		}
		rows[reason] = fmt.Sprintf("| %s | %s |\n", strings.NewReplacer("[", "*", "]", "*").Replace(reason), strings.Join(files, ", "))
	}
	texttest.Part(t, mapFile, "events", "| reason | written in |\n|---|---|\n"+joined(rows))
}

// reasons finds the reasons of events.
type reasons struct {
	consts   map[string]string   // texts of constants by their names
	texts    map[string]bool     // all texts of the product
	wrappers map[string]int      // functions that write events, and which argument is the reason; from the end, if negative
	places   map[string][]string // files by reason
	used     map[string]bool     // of elsewhere
}

// read notes texts and constants.
func (r *reasons) read(_ *source, _ *ast.FuncDecl, n ast.Node) {
	switch n := n.(type) {
	case *ast.BasicLit:
		r.texts[text(n)] = true
	case *ast.ValueSpec:
		for i, name := range n.Names {
			if i < len(n.Values) && text(n.Values[i]) != "" {
				r.consts[name.Name] = text(n.Values[i])
			}
		}
	}
}

// find notes the reason of a call that writes an event, or that the function it is in hands on
// the one that it is given.
func (r *reasons) find(t *testing.T, s *source, in *ast.FuncDecl, n ast.Node) {
	call, ok := n.(*ast.CallExpr)
	if !ok || in == nil || len(call.Args) < 3 {
		return
	}
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return
	}
	i, ok := r.wrappers[sel.Sel.Name]
	if !ok {
		return
	}
	arg := call.Args[(i+len(call.Args))%len(call.Args)]
	found := r.resolved(arg, in)
	if id, ok := arg.(*ast.Ident); ok && len(found) == 0 {
		if at, ok := paramOf(in.Type, id.Name); ok {
			if _, known := r.wrappers[in.Name.Name]; !known {
				r.wrappers[in.Name.Name] = at
			}
			return
		}
		if ofLiteral(in, id.Name) {
			return
		}
	}
	if len(found) == 0 {
		area, _, _ := strings.Cut(strings.TrimPrefix(s.path, "internal/"), "/")
		where := fmt.Sprintf("%s %s(%s)", area, sel.Sel.Name, types.ExprString(arg))
		if found, ok = elsewhere[where]; !ok {
			t.Errorf("%s: the reason of the event is no text; list in elsewhere what %s may be", s.path, where)
		}
		r.used[where] = true
	}
	for _, reason := range found {
		if !slices.Contains(r.places[reason], s.path) {
			r.places[reason] = append(r.places[reason], s.path)
		}
	}
}

// paramOf returns which parameter of a function has the name.
func paramOf(f *ast.FuncType, name string) (at int, ok bool) {
	for _, field := range f.Params.List {
		for _, n := range field.Names {
			if n.Name == name {
				return at, true
			}
			at++
		}
	}
	return 0, false
}

// ofLiteral reports whether a function within in has a parameter of the name.
func ofLiteral(in *ast.FuncDecl, name string) (found bool) {
	ast.Inspect(in, func(n ast.Node) bool {
		if lit, ok := n.(*ast.FuncLit); ok {
			_, has := paramOf(lit.Type, name)
			found = found || has
		}
		return true
	})
	return found
}

// resolved returns the texts that arg, within a function, may be.
func (r *reasons) resolved(arg ast.Expr, in *ast.FuncDecl) (out []string) {
	switch arg := arg.(type) {
	case *ast.BasicLit:
		return []string{text(arg)}
	case *ast.SelectorExpr:
		if c := r.consts[arg.Sel.Name]; c != "" && strings.HasPrefix(arg.Sel.Name, "Reason") {
			return []string{c}
		}
	case *ast.Ident:
		if c := r.consts[arg.Name]; c != "" {
			return []string{c}
		}
		ast.Inspect(in, func(n ast.Node) bool {
			if a, ok := n.(*ast.AssignStmt); ok {
				for i, lhs := range a.Lhs {
					if id, ok := lhs.(*ast.Ident); ok && id.Name == arg.Name && i < len(a.Rhs) && text(a.Rhs[i]) != "" {
						out = append(out, text(a.Rhs[i]))
					}
				}
			}
			return true
		})
	}
	return out
}

// eachProductNode calls fn with every node of the code of the product, and the function it is in.
func eachProductNode(t *testing.T, fn func(s *source, in *ast.FuncDecl, n ast.Node)) {
	t.Helper()
	sources, err := tree()
	if err != nil {
		t.Fatal(err)
	}
	own := inProduct(sources)
	for _, s := range sources {
		if !own[s] || inNestedModule(s) {
			continue
		}
		for _, decl := range s.file.Decls {
			in, _ := decl.(*ast.FuncDecl)
			ast.Inspect(decl, func(n ast.Node) bool {
				fn(s, in, n)
				return true
			})
		}
	}
}

// text is the text of a literal, or of several that are added; "" for anything else.
func text(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		s, _ := strconv.Unquote(e.Value)
		return s
	case *ast.BinaryExpr:
		if x, y := text(e.X), text(e.Y); x != "" && y != "" {
			return x + y
		}
	}
	return ""
}

func joined(rows map[string]string) string {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(rows)) {
		b.WriteString(rows[key])
	}
	return b.String()
}
