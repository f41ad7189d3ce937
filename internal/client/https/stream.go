package https

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"google.golang.org/protobuf/encoding/protowire"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// event is one event of a watch, as it was sent.
type event struct {
	kind   string // ADDED, MODIFIED, DELETED, BOOKMARK, ERROR
	object document
}

// failure is the error that an event of kind ERROR tells.
func (e *event) failure() error {
	s := &metav1.Status{}
	if err := e.object.into(s); err != nil {
		return err
	}
	if s.Reason == metav1.StatusReasonExpired || s.Code == http.StatusGone {
		return errExpired
	}
	return &apierrors.StatusError{ErrStatus: *s}
}

// Limits of watch streams.
const (
	streamBuffer = 64 << 10
	maxFrame     = 16 << 20
	maxBatch     = 512 // events taken in at once
)

// errEnd says that the server has ended the watch in order.
var errEnd = errors.New("the watch has ended")

// stream reads the events of a watch.
type stream struct {
	r     *bufio.Reader
	kind  string
	frame func() ([]byte, error)
	whole func() bool // the next frame is here as a whole
}

func newStream(kind string, from io.Reader) *stream {
	s := &stream{r: bufio.NewReaderSize(from, streamBuffer), kind: kind}
	if kind == mediaProto {
		s.frame, s.whole = s.sized, s.sizedWhole
	} else {
		s.frame, s.whole = s.line, s.lineWhole
	}
	return s
}

// next waits for an event and returns it with those that have come with it.
// Events that came before an error are returned with it.
func (s *stream) next() ([]event, error) {
	var events []event
	for len(events) == 0 || len(events) < maxBatch && s.whole() {
		frame, err := s.frame()
		if err != nil {
			return events, err
		}
		if len(frame) == 0 {
			continue
		}
		e, err := s.parse(frame)
		if err != nil {
			return events, err
		}
		events = append(events, e)
	}
	return events, nil
}

// sized reads a frame of a protobuf watch: four bytes of length, and so many bytes.
func (s *stream) sized() ([]byte, error) {
	var head [4]byte
	if n, err := io.ReadFull(s.r, head[:]); err != nil {
		if n == 0 && errors.Is(err, io.EOF) {
			return nil, errEnd
		}
		return nil, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > maxFrame {
		return nil, fmt.Errorf("an event of %d bytes", n)
	}
	frame := make([]byte, n) // the event's object refers to it until it is decoded
	_, err := io.ReadFull(s.r, frame)
	return frame, err
}

func (s *stream) sizedWhole() bool {
	if s.r.Buffered() < 4 {
		return false
	}
	head, err := s.r.Peek(4)
	return err == nil && uint64(s.r.Buffered()) >= 4+uint64(binary.BigEndian.Uint32(head))
}

// line reads a frame of a JSON watch, which ends with the line.
func (s *stream) line() ([]byte, error) {
	var frame []byte
	for {
		part, err := s.r.ReadSlice('\n')
		frame = append(frame, part...)
		switch {
		case err == nil:
			return frame[:len(frame)-1], nil
		case errors.Is(err, io.EOF) && len(frame) == 0:
			return nil, errEnd
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		case len(frame) > maxFrame:
			return nil, fmt.Errorf("an event of more than %d bytes", maxFrame)
		}
	}
}

func (s *stream) lineWhole() bool {
	buffered, err := s.r.Peek(s.r.Buffered())
	if err != nil {
		return false
	}
	for _, b := range buffered {
		if b == '\n' {
			return true
		}
	}
	return false
}

// parse takes a frame apart: the message WatchEvent with a RawExtension in it.
func (s *stream) parse(frame []byte) (e event, err error) {
	if s.kind != mediaProto {
		var w struct {
			Type   string          `json:"type"`
			Object json.RawMessage `json:"object"`
		}
		if err := json.Unmarshal(frame, &w); err != nil {
			return e, fmt.Errorf("read event: %w", err)
		}
		e.kind = w.Type
		e.object, err = open(mediaJSON, w.Object)
		return e, err
	}
	err = fields(frame, func(n protowire.Number, value []byte) error {
		switch n {
		case 1:
			e.kind = string(value)
		case 2:
			return fields(value, func(n protowire.Number, value []byte) (err error) {
				if n == 1 {
					e.object, err = open(mediaProto, value)
				}
				return err
			})
		}
		return nil
	})
	return e, err
}
