package integration_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/nats-io/nats-server/v2/server"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/function"
)

// composeFile is what docker-compose.yml may say. Another key is an error, so
// that a test sees what is in it.
type composeFile struct {
	Name     string                    `yaml:"name"`
	Nats     any                       `yaml:"x-nats"`
	Services map[string]composeService `yaml:"services"`
	Volumes  map[string]any            `yaml:"volumes"`
	Networks map[string]struct {
		Name string `yaml:"name"`
	} `yaml:"networks"`
}

type composeService struct {
	Image       string            `yaml:"image"`
	Build       string            `yaml:"build"`
	Command     []string          `yaml:"command"`
	Restart     string            `yaml:"restart"`
	Grace       string            `yaml:"stop_grace_period"`
	Networks    []string          `yaml:"networks"`
	Ports       []string          `yaml:"ports"`
	Volumes     []string          `yaml:"volumes"`
	Environment map[string]string `yaml:"environment"`
	DependsOn   map[string]struct {
		Condition string `yaml:"condition"`
	} `yaml:"depends_on"`
	Deploy struct {
		Replicas int `yaml:"replicas"`
	} `yaml:"deploy"`
	ReadOnly    bool     `yaml:"read_only"`
	CapDrop     []string `yaml:"cap_drop"`
	SecurityOpt []string `yaml:"security_opt"`
	Healthcheck struct {
		Test        []string `yaml:"test"`
		Interval    string   `yaml:"interval"`
		Timeout     string   `yaml:"timeout"`
		Retries     int      `yaml:"retries"`
		StartPeriod string   `yaml:"start_period"`
	} `yaml:"healthcheck"`
}

// playServer is nats-server, as a process that a test may kill.
func playServer(args []string) error {
	flags := flag.NewFlagSet("nats-server", flag.ContinueOnError)
	no := func() {}
	opts, err := server.ConfigureOptions(flags, args, no, no, no)
	if err != nil {
		return err
	}
	srv, err := server.NewServer(opts)
	if err != nil {
		return err
	}
	srv.ConfigureLogger()
	srv.Start()
	srv.WaitForShutdown()
	return nil
}

// launchServer starts nats-server.
func launchServer(t testing.TB, args ...string) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, args...) //nolint:noctx // the test ends it
	cmd.Env = append(os.Environ(), playsEnv+"=nats-server")
	return start(t, cmd)
}

// compose is docker-compose.yml on the loopback: each server and worker is a
// process with the command, the configuration and the environment of the file.
type compose struct {
	t       *testing.T
	file    composeFile
	names   []string          // of the servers
	address map[string]string // "nats-1:4222" -> "127.0.0.1:31337"
	dir     string
	servers map[string]*process
}

func readCompose(t *testing.T) *compose {
	t.Helper()
	text, err := os.ReadFile("../docker-compose.yml")
	if err != nil {
		t.Fatal(err)
	}
	c := &compose{t: t, address: map[string]string{}, dir: t.TempDir(), servers: map[string]*process{}}
	if err := yaml.UnmarshalWithOptions(text, &c.file, yaml.Strict()); err != nil {
		t.Fatal(err)
	}
	for name := range c.file.Services {
		if strings.HasPrefix(name, "nats-") {
			c.names = append(c.names, name)
		}
	}
	slices.Sort(c.names)
	for _, name := range c.names {
		for _, port := range []string{"4222", "6222", "8222"} {
			c.address[name+":"+port] = freeAddress(t)
		}
	}
	return c
}

// mapped replaces the addresses of the network of the containers.
func (c *compose) mapped(text string) string {
	for from, to := range c.address {
		text = strings.ReplaceAll(text, from, to)
	}
	return text
}

// config writes the configuration of one server.
func (c *compose) config(name string) string {
	c.t.Helper()
	raw, err := os.ReadFile("../deploy/nats.conf")
	if err != nil {
		c.t.Fatal(err)
	}
	text := c.mapped(string(raw))
	replace := func(from, to string) {
		if strings.Count(text, from) != 1 {
			c.t.Fatalf("deploy/nats.conf has %q %d times, want once", from, strings.Count(text, from))
		}
		text = strings.Replace(text, from, to, 1)
	}
	for _, port := range []string{"4222", "6222", "8222"} {
		replace("0.0.0.0:"+port, c.address[name+":"+port])
	}
	replace(`"/data"`, `"`+filepath.Join(c.dir, name)+`"`)
	file := filepath.Join(c.dir, name+".conf")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
	return file
}

// up starts a server, as the container does.
func (c *compose) up(name string) {
	c.t.Helper()
	args := slices.Clone(c.file.Services[name].Command)
	for i, arg := range args {
		if arg == "/etc/nats/nats.conf" {
			args[i] = c.config(name)
		}
	}
	c.servers[name] = launchServer(c.t, args...)
}

// healthy waits until the healthcheck of a server succeeds.
func (c *compose) healthy(ctx context.Context, name string) {
	c.t.Helper()
	test := c.file.Services[name].Healthcheck.Test
	url := strings.Replace(test[len(test)-1], "127.0.0.1:8222", c.address[name+":8222"], 1)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for tick := time.NewTicker(50 * time.Millisecond); ; {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			c.t.Fatal(err)
		}
		if res, err := client.Do(req); err == nil {
			_, _ = io.Copy(io.Discard, res.Body)
			_ = res.Body.Close()
			if res.StatusCode == http.StatusOK {
				return
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			c.t.Fatalf("server %s is not healthy:\n%s", name, c.servers[name].tail())
		}
	}
}

// worker runs a command of the binary in the environment of a worker.
func (c *compose) worker(args []string, more ...string) *process {
	c.t.Helper()
	cmd := exec.Command(binary(), args...) //nolint:noctx // the test ends it
	cmd.Env = append(os.Environ(), more...)
	for name, value := range c.file.Services["worker"].Environment {
		cmd.Env = append(cmd.Env, name+"="+c.mapped(value))
	}
	return start(c.t, cmd)
}

// What can be said of the files without an engine.
func TestComposeFile(t *testing.T) {
	c := readCompose(t)
	if !slices.Equal(c.names, []string{"nats-1", "nats-2", "nats-3"}) || c.file.Networks["fleet"].Name == "" {
		t.Errorf("the servers are %v, the networks %v", c.names, c.file.Networks)
	}
	for name, s := range c.file.Services {
		if s.Restart == "" || len(s.Healthcheck.Test) == 0 || !slices.Equal(s.Networks, []string{"fleet"}) {
			t.Errorf("%s lacks a restart policy, a healthcheck or the network", name)
		}
		for _, port := range s.Ports {
			if !strings.HasPrefix(port, "127.0.0.1:") {
				t.Errorf("%s publishes %s to everybody, and there are no credentials", name, port)
			}
		}
	}
	for _, name := range c.names {
		if _, ok := c.file.Volumes[name]; !ok || !slices.Contains(c.file.Services[name].Volumes, name+":/data") {
			t.Errorf("%s has no volume of its own", name)
		}
		if c.file.Services["worker"].DependsOn[name].Condition != "service_healthy" {
			t.Errorf("workers do not wait for %s", name)
		}
		opts, err := server.ProcessConfigFile(c.config(name))
		if err != nil {
			t.Fatal(err)
		}
		if !opts.JetStream || !opts.SyncAlways || len(opts.Routes) != 3 || opts.MaxPayload < 8<<20 {
			t.Errorf("%s: JetStream %v, sync always %v, routes %v, payload %d", name, opts.JetStream, opts.SyncAlways, opts.Routes, opts.MaxPayload)
		}
	}
	w := c.file.Services["worker"]
	if w.Deploy.Replicas != 3 || w.Environment["DROVER_REPLICAS"] != "3" || !w.ReadOnly {
		t.Errorf("the worker is %+v", w)
	}
	dockerfile, err := os.ReadFile("../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`CGO_ENABLED=0`, `USER 65532:65532`, `ENTRYPOINT \["/drover"\]`, `FROM gcr.io/distroless/static`} {
		if !regexp.MustCompile(want).Match(dockerfile) {
			t.Errorf("the Dockerfile lacks %s", want)
		}
	}
	module, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	version := regexp.MustCompile(`nats-server/v2 v(\S+)`).FindSubmatch(module)
	if want := "nats:" + string(version[1]) + "-alpine"; c.file.Services["nats-1"].Image != want {
		t.Errorf("the image is %s, and the tests run with %s", c.file.Services["nats-1"].Image, want)
	}
}

// The fleet of docker-compose.yml loses a server and a worker by kill -9.
func TestComposeSurvivesAServerAndAWorker(t *testing.T) {
	c := readCompose(t)
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()
	for _, name := range c.names {
		c.up(name)
	}
	for _, name := range c.names {
		c.healthy(ctx, name)
	}
	spec := c.file.Services["worker"]
	var workers []*process
	for i := range spec.Deploy.Replicas {
		workers = append(workers, c.worker(spec.Command, fmt.Sprintf("DROVER_NAME=worker-%d", i)))
	}
	if status, _, stderr := c.worker(append(slices.Clone(spec.Healthcheck.Test[2:]), "--timeout", patience.String())).wait(); status != 0 {
		t.Fatalf("the healthcheck of a worker ends with %d: %s", status, stderr)
	}
	f := connect(t, c.mapped(spec.Environment["DROVER_NATS"]))
	begun := serveCounting(t, f)
	stream, err := f.js.Stream(ctx, "DROVER")
	if err != nil {
		t.Fatal(err)
	}
	if n := stream.CachedInfo().Config.Replicas; n != 3 {
		t.Fatalf("the stream has %d replicas", n)
	}
	leader := stream.CachedInfo().Cluster.Leader

	const runs = 30
	for i := range runs {
		id := fmt.Sprintf("run-%d", i)
		publishStart(f, id)
		switch i {
		case 10:
			await(t, begun, "a call")
			c.servers[leader].kill()
		case 20:
			workers[0].kill()
		}
	}
	for i := range runs {
		o, err := f.Wait(ctx, drover.RunID(fmt.Sprintf("run-%d", i)))
		if err != nil || o.Status != drover.StatusCompleted || string(o.Result) != "[0,2,4,6,8]" {
			t.Fatalf("the outcome is %+v, %v", o, err)
		}
	}
	done, err := f.js.Stream(ctx, "DROVER_DONE")
	if err != nil {
		t.Fatal(err)
	}
	if n := done.CachedInfo().State.Msgs; n != runs {
		t.Errorf("%d outcomes of %d runs", n, runs)
	}
	// The server comes back, and is one of three again.
	c.up(leader)
	c.healthy(ctx, leader)
	publishStart(f, "run-after")
	if o, err := f.Wait(ctx, "run-after"); err != nil || o.Status != drover.StatusCompleted {
		t.Errorf("the outcome is %+v, %v", o, err)
	}
}

// serveCounting serves the function double until the test ends, and tells of
// calls that begin.
func serveCounting(t *testing.T, f *fleet) <-chan struct{} {
	t.Helper()
	begun := make(chan struct{}, 10_000)
	double := function.New("double", func(_ context.Context, n int) (int, error) {
		begun <- struct{}{}
		return 2 * n, nil
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	nc := dial(t, f.url)
	go func() { ended <- function.Serve(ctx, nc, double) }()
	t.Cleanup(func() {
		cancel()
		if err := await(t, ended, "the end of the function"); err != nil {
			t.Error(err)
		}
	})
	return begun
}

// publishStart starts a run of six calls.
func publishStart(f *fleet, run string) {
	f.t.Helper()
	f.publish(drover.RunID(run), drover.VerbStart, drover.StartRequest{Definition: raw(`
nodes:
  one: {call: double, input: {with: 21}}
  many: {call: double, fanout: {over: run_input}, depends_on: [one]}
output: {from: node:many}`), Input: json.RawMessage(`[0,1,2,3,4]`)})
}
