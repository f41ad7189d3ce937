package relay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	constants "k8s.io/apimachinery/pkg/util/remotecommand"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/streaming/pkg/httpstream/wsstream"
	"k8s.io/utils/exec"
)

// five serves version 5 of the WebSocket protocol, in which a client can say that its input ends (KEP-4006). The
// library that serves the versions before knows nothing of it.
type five struct {
	asked  *remotecommand.Options
	idle   time.Duration
	failed string // how an error of the container runtime is told
}

// statusWait is how long a client may take to be told how it has ended.
const statusWait = 10 * time.Second

// serve has run use the client's streams, and tells the client how that went.
func (v five) serve(w http.ResponseWriter, r *http.Request, run func(_ context.Context, in io.Reader, out, errOut io.WriteCloser, resize <-chan remotecommand.TerminalSize) error) {
	channels := make([]wsstream.ChannelType, constants.StreamResize+1)
	for i, wanted := range map[int]bool{constants.StreamStdIn: v.asked.Stdin, constants.StreamStdOut: v.asked.Stdout, constants.StreamStdErr: v.asked.Stderr} {
		switch {
		case !wanted:
			channels[i] = wsstream.IgnoreChannel
		case i == constants.StreamStdIn:
			channels[i] = wsstream.ReadChannel
		default:
			channels[i] = wsstream.WriteChannel
		}
	}
	channels[constants.StreamErr], channels[constants.StreamResize] = wsstream.WriteChannel, wsstream.ReadChannel
	conn := wsstream.NewConn(map[string]wsstream.ChannelProtocolConfig{constants.StreamProtocolV5Name: {Binary: true, Channels: channels}})
	conn.SetIdleTimeout(v.idle)
	_, all, err := conn.Open(w, r)
	if err != nil {
		return // the client has been told
	}
	defer conn.Close()           // an error means that the client has gone
	first := constants.StreamErr // of those that the client reads: it waits for a word on it
	switch {
	case v.asked.Stdout:
		first = constants.StreamStdOut
	case v.asked.Stderr:
		first = constants.StreamStdErr
	}
	if _, err := all[first].Write(nil); err != nil {
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	var wg sync.WaitGroup
	defer func() { // whoever reads sizes ends with the connection
		cancel()
		_ = conn.Close()
		wg.Wait()
	}()
	sizes := make(chan remotecommand.TerminalSize)
	wg.Go(func() { readSizes(ctx, all[constants.StreamResize], sizes) })
	err = run(ctx, all[constants.StreamStdIn], all[constants.StreamStdOut], all[constants.StreamStdErr], sizes)
	conn.SetWriteDeadline(statusWait)
	if data, err := json.Marshal(v.status(err)); err == nil {
		_, _ = all[constants.StreamErr].Write(data) // an error means that the client has gone
	}
}

// status is how clients are told of an error, or of none.
func (v five) status(err error) metav1.Status {
	var exit exec.ExitError
	switch {
	case err == nil:
		return metav1.Status{Status: metav1.StatusSuccess}
	case errors.As(err, &exit) && exit.Exited():
		return metav1.Status{
			Status: metav1.StatusFailure, Reason: constants.NonZeroExitCodeReason, Message: fmt.Sprintf("command terminated with non-zero exit code: %v", exit),
			Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: constants.ExitCodeCauseType, Message: fmt.Sprint(exit.ExitStatus())}}},
		}
	}
	return apierrors.NewInternalError(fmt.Errorf(v.failed, err)).Status()
}

// readSizes hands on the sizes of a client's terminal that come by a stream.
func readSizes(ctx context.Context, from io.Reader, to chan<- remotecommand.TerminalSize) {
	defer close(to)
	for in := json.NewDecoder(from); ; {
		var size remotecommand.TerminalSize
		if in.Decode(&size) != nil {
			return
		}
		select {
		case to <- size:
		case <-ctx.Done():
			return
		}
	}
}
