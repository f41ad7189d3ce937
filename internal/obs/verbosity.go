package obs

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"

	"k8s.io/klog/v2"
)

// VerbosityOfDebug is the level of upstream's logs, --v, from which everything is logged here.
const VerbosityOfDebug = 4

// VerbosityPath is where how much is logged can be said while a part runs.
const VerbosityPath = "/debug/flags/v"

// Verbosity serves [VerbosityPath]: what is PUT there is how much is logged from then on, as upstream counts.
type Verbosity struct{ Log *slog.Logger }

// mostVerbosity is how long such a number may be, in bytes.
const mostVerbosity = 64

// ServeHTTP sets the level of the log, and what the Kubernetes libraries have to say.
func (v Verbosity) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer := func(code int, text string) {
		w.Header().Set("Content-Type", "text/plain")
		w.WriteHeader(code)
		_, _ = io.WriteString(w, text+"\n") // an error means that the client has gone
	}
	if r.Method != http.MethodPut {
		answer(http.StatusNotAcceptable, "unsupported http method")
		return
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, mostVerbosity))
	if err != nil {
		answer(http.StatusBadRequest, "error reading request body: "+err.Error())
		return
	}
	said := strings.TrimSpace(string(body))
	verbosity, err := strconv.ParseInt(said, 10, 32)
	if err == nil {
		err = new(klog.Level).Set(said)
	}
	if err != nil {
		answer(http.StatusBadRequest, fmt.Sprintf("error setting level: failed set klog.logging.verbosity %s: %v", said, err))
		return
	}
	v.set(verbosity)
	answer(http.StatusOK, "successfully set klog.logging.verbosity to "+said)
}

// set has the log show everything, or again what it showed at its beginning. A logger that [NewLogger] has not made
// stays as it is.
func (v Verbosity) set(verbosity int64) {
	h, ok := v.Log.Handler().(written)
	switch {
	case !ok:
	case verbosity >= VerbosityOfDebug:
		h.level.Set(slog.LevelDebug)
	default:
		h.level.Set(h.begun)
	}
}
