package expression

import (
	"strings"
	"testing"
)

func TestNearest(t *testing.T) {
	names := []string{"call", "retry", "timeout", "depends_on", "output", "set", "max_parallel"}
	for s, want := range map[string]string{
		"retries": "retry", "retrying": "retry", "timeout_seconds": "timeout", "tmieout": "timeout", "time": "timeout",
		"max": "max_parallel", "outputs": "output", "depends": "depends_on", "settings": "", "callous_and_long": "call", "": "", "x": "", "zzzz": "",
	} {
		if got := Nearest(s, names); got != want {
			t.Errorf("nearest to %q is %q, not %q", s, got, want)
		}
	}
}

func TestUnmarked(t *testing.T) {
	for raw, want := range map[string]string{
		`"{{ input.a }}"`: " {{ input.a }}",
		`{"a": ["x {{nodes.b.output[0]}} {{ item }}"]}`:                     "a[0] {{ nodes.b.output[0] }}, a[0] {{ item }}",
		`"${{ input.a }} {{ input.b }}"`:                                    " {{ input.b }}",
		`"${{ '{{ input.a }}' }}"`:                                          "",
		`"{{ name }} {{ 1 + 2 }} {{#if input}} {{ input. }} {{ 'input' }}"`: "",
		`"{{ input"`:             "",
		`"{ {{ } }}"`:            "",
		`{"{{ input.a }}": 1}`:   "",
		`{"a": "{{ input.a }}`:   "",
		`"{{ run.id }}"`:         "",
		`"{{ upper(input.a) }}"`: " {{ upper(input.a) }}",
	} {
		var got []string
		for _, e := range Unmarked([]byte(raw)) {
			got = append(got, e.Path+" "+e.Source)
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("%s gives %q, not %s", raw, got, want)
		}
	}
	many := Unmarked([]byte(`"` + strings.Repeat("{{ input.a }}", 50_000) + `"`))
	if len(many) != maxUnmarked {
		t.Errorf("%d are looked into, not %d", len(many), maxUnmarked)
	}
}

func TestStatusesAreThoseThatANodeCanHave(t *testing.T) {
	for src, want := range map[string]string{
		`nodes.plan.status == "done"`:                             "",
		`nodes.plan.status != 'skipped'`:                          "",
		`nodes.plan.status in ["failed", "cancelled"]`:            "",
		`nodes.plan.output.status == "completed"`:                 "",
		`input.status == "completed"`:                             "",
		`input.plan.status == "completed"`:                        "",
		`nodes.plan.status == input.x`:                            "",
		`nodes.plan.status == "completed"`:                        `did you mean "done"? The statuses are done, failed, cancelled, skipped`,
		`"Canceled" == nodes["plan"].status`:                      `did you mean "cancelled"?`,
		`nodes.plan.status in ["done", "runing"]`:                 "the statuses are",
		`nodes.plan?.status != "fialed"`:                          `did you mean "failed"?`,
		`input.go and not (nodes.plan.status == "success")`:       `column 40: no node that is over has the status "success"`,
		`map(input.list, nodes.plan.status == "pending" ? 1 : 2)`: `no node that is over has the status "pending"`,
	} {
		_, err := Compile(src, testScope, Any)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s\n got %v\nwant %s", src, err, want)
		}
	}
}
