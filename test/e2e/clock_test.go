package e2e

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/kemudi/kemudi/test/wait"
)

// clock is that of one process, ahead of the machine's or behind it. A kernel has one clock for
// all, and what a program asks for the time is a function that the kernel maps into it. That of
// the process is written over: it then asks the kernel, and adds seconds to the answer. Only the
// time of day is another: what measures durations goes on as before, as it does when
// a machine's clock is set.
type clock struct {
	pid int
	at  int64  // address of the function
	was []byte // what was there
}

// The code that takes the function's place, and where in it the seconds are.
var (
	tellTime = []byte{
		0xb8, 0xe4, 0, 0, 0, // mov eax, clock_gettime
		0x0f, 0x05, // syscall
		0x85, 0xff, // test edi, edi: is it the time of day?
		0x75, 0x07, // jnz to the end
		0x48, 0x81, 0x06, 0, 0, 0, 0, // add qword [rsi], seconds
		0xc3, // ret
	}
	secondsAt = 14
)

// clockOf finds the clock of a process. Where it cannot be set the error is errors.ErrUnsupported.
func clockOf(pid int) (*clock, error) {
	if runtime.GOARCH != "amd64" {
		return nil, fmt.Errorf("the clock of one process on %s: %w", runtime.GOARCH, errors.ErrUnsupported)
	}
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(maps)) {
		fields := strings.Fields(line)
		if fields[len(fields)-1] != "[vdso]" {
			continue
		}
		from, to, _ := strings.Cut(fields[0], "-")
		begin, err := strconv.ParseInt(from, 16, 64)
		if err != nil {
			return nil, err
		}
		end, err := strconv.ParseInt(to, 16, 64)
		if err != nil {
			return nil, err
		}
		return clockIn(pid, begin, end)
	}
	return nil, fmt.Errorf("process %d: what the kernel maps into it: %w", pid, errors.ErrUnsupported)
}

// clockIn finds the function between two addresses of a process.
func clockIn(pid int, begin, end int64) (*clock, error) {
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		return nil, err
	}
	defer mem.Close()
	image := make([]byte, end-begin)
	if _, err := mem.ReadAt(image, begin); err != nil {
		return nil, fmt.Errorf("read memory of process %d: %w", pid, err)
	}
	file, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return nil, fmt.Errorf("read what the kernel maps: %w", err)
	}
	symbols, err := file.DynamicSymbols()
	if err != nil {
		return nil, fmt.Errorf("read what the kernel maps: %w", err)
	}
	for _, s := range symbols {
		if s.Name == "__vdso_clock_gettime" && s.Value+s.Size <= uint64(len(image)) && s.Size >= uint64(len(tellTime)) {
			was := bytes.Clone(image[s.Value : s.Value+uint64(len(tellTime))])
			return &clock{pid: pid, at: begin + int64(s.Value), was: was}, nil
		}
	}
	return nil, fmt.Errorf("the kernel's function for the time: %w", errors.ErrUnsupported)
}

// step sets the clock so far ahead of the machine's, or behind it.
func (c *clock) step(ahead time.Duration) error {
	seconds := int64(ahead / time.Second)
	if seconds < math.MinInt32 || seconds > math.MaxInt32 {
		return fmt.Errorf("%s is too far", ahead)
	}
	code := bytes.Clone(tellTime)
	binary.LittleEndian.PutUint32(code[secondsAt:], uint32(int32(seconds)))
	return c.write(code)
}

// right sets the clock right again.
func (c *clock) right() error { return c.write(c.was) }

// write puts code in the function's place while nobody is there.
func (c *clock) write(code []byte) error {
	defer func() { _ = syscall.Kill(c.pid, syscall.SIGCONT) }()
	err := wait.Try(wait.Patience, func() error {
		if err := syscall.Kill(c.pid, syscall.SIGSTOP); err != nil {
			return err
		}
		err := wait.Try(time.Second, c.stands)
		if err != nil {
			_ = syscall.Kill(c.pid, syscall.SIGCONT)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("stop process %d: %w", c.pid, err)
	}
	mem, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", c.pid), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer mem.Close()
	if _, err := mem.WriteAt(code, c.at); err != nil {
		return fmt.Errorf("write memory of process %d: %w", c.pid, err)
	}
	return nil
}

// stands is an error unless all threads of the process stand still, outside of the function
// (the kernel's functions may share their inner parts, and do not call each other).
func (c *clock) stands() error {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", c.pid))
	if err != nil || len(tasks) == 0 {
		return fmt.Errorf("find the threads of process %d: %w", c.pid, errors.Join(err, os.ErrProcessDone))
	}
	for _, task := range tasks {
		stat, err := os.ReadFile(task + "/stat")
		if err != nil {
			return err
		}
		_, state, _ := strings.Cut(string(stat), ") ")
		if !strings.HasPrefix(state, "T") {
			return fmt.Errorf("thread %s runs", filepath.Base(task))
		}
		where, err := os.ReadFile(task + "/syscall")
		if err != nil {
			return err
		}
		fields := strings.Fields(string(where))
		pc, err := strconv.ParseInt(strings.TrimPrefix(fields[len(fields)-1], "0x"), 16, 64)
		if err != nil {
			return fmt.Errorf("thread %s is at %q: %w", filepath.Base(task), where, err)
		}
		if pc >= c.at && pc < c.at+int64(len(tellTime)) {
			return fmt.Errorf("thread %s asks for the time", filepath.Base(task))
		}
	}
	return nil
}
