//go:build unix

package kubernetes_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-go/holdfast/backends/kubernetes/kubetest"
	"github.com/holdfast-go/holdfast/internal/tier"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type object = map[string]any

// objects reads documents of YAML, the objects of a namespace by kind. Each kind comes once.
func objects(t *testing.T, text string) map[string]object {
	t.Helper()
	all := map[string]object{}
	for doc := range strings.SplitSeq(text, "\n---\n") {
		var o object
		require.NoError(t, yaml.UnmarshalStrict([]byte(doc), &o), doc)
		kind := fmt.Sprint(o["kind"])
		require.NotContains(t, all, kind)
		all[kind] = o
	}
	return all
}

// kustomized is what `kubectl kustomize` prints.
func kustomized(t *testing.T, dir string) map[string]object {
	t.Helper()
	m, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	require.NoError(t, err)
	text, err := m.AsYaml()
	require.NoError(t, err)
	return objects(t, string(text))
}

// helm is what `helm template app ./chart --namespace NAMESPACE --values FILE` prints.
func helm(values, namespace string) (string, error) {
	chart, err := loader.Load("chart")
	if err != nil {
		return "", err
	}
	given := object{}
	if err := yaml.UnmarshalStrict([]byte(values), &given); err != nil {
		return "", err
	}
	all, err := util.ToRenderValues(chart, given, common.ReleaseOptions{Name: "app", Namespace: namespace}, nil)
	if err != nil {
		return "", err
	}
	files, err := engine.Render(chart, all)
	return files["holdfast-app/templates/app.yaml"], err
}

func helmed(t *testing.T, values, namespace string) map[string]object {
	t.Helper()
	text, err := helm(values, namespace)
	require.NoError(t, err)
	return objects(t, text)
}

// inNamespace has objects say the namespace that they get when they are applied, and the account of a
// RoleBinding too, as RBAC takes it.
func inNamespace(all map[string]object, namespace string) map[string]object {
	for _, o := range all {
		o["metadata"].(object)["namespace"] = namespace
	}
	all["RoleBinding"]["subjects"].([]any)[0].(object)["namespace"] = namespace
	return all
}

// overlaid are the values that say what testdata/overlay says.
const overlaid = `
image: registry.example.com/bank:1.4.2
version: 1.4.2
replicas: 5
store: {secret: store}
`

// The base and the chart say the same, by default and with what an overlay changes.
func TestTheBaseAndTheChartSayTheSame(t *testing.T) {
	base := inNamespace(kustomized(t, "base"), "default")
	require.Len(t, base, 6)
	require.Equal(t, base, inNamespace(helmed(t, "image: app", "default"), "default"))
	require.Equal(t, kustomized(t, "testdata/overlay"), inNamespace(helmed(t, overlaid, "bank"), "bank"))
}

// deployment is the one of objects.
func deployment(t *testing.T, all map[string]object) (d apps.Deployment) {
	t.Helper()
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(all["Deployment"], &d, true))
	return d
}

// What one part says fits what others say: labels, ports, variables, and the time to stop.
func TestThePartsFit(t *testing.T) {
	for _, values := range []string{"image: app", "{image: app, stopWithinSeconds: 100, ports: {remoting: 1, http: 2}, env: [{name: A, value: b}]}"} {
		all := helmed(t, values, "default")
		d := deployment(t, all)
		pod := d.Spec.Template
		var stop int64
		c := pod.Spec.Containers[0]
		env := map[string]string{}
		for _, e := range c.Env {
			env[e.Name] = e.Value
		}
		_, err := fmt.Sscanf(env["STOP_WITHIN"], "%ds", &stop)
		require.NoError(t, err)
		// A tenth for what Stop does after its time, and what remoting may take then.
		require.GreaterOrEqual(t, *pod.Spec.TerminationGracePeriodSeconds, stop+stop/10+5)
		require.Greater(t, c.ReadinessProbe.TimeoutSeconds, int32(5), "what node.Handler may take")
		ports := map[string]string{}
		for _, p := range c.Ports {
			ports[p.Name] = fmt.Sprint(p.ContainerPort)
		}
		require.Equal(t, map[string]string{"remoting": env["REMOTING_PORT"], "http": env["HTTP_PORT"]}, ports)
		for _, probe := range []*core.Probe{c.LivenessProbe, c.ReadinessProbe} {
			require.Equal(t, "http", probe.HTTPGet.Port.StrVal)
		}
		labels := d.Spec.Selector.MatchLabels
		require.Subset(t, pod.Labels, labels)
		for _, path := range [][]string{
			{"PodDisruptionBudget", "spec", "selector", "matchLabels"},
			{"NetworkPolicy", "spec", "podSelector", "matchLabels"},
		} {
			selects, ok, err := unstructured.NestedStringMap(all[path[0]], path[1:]...)
			require.NoError(t, err)
			require.True(t, ok)
			require.Equal(t, labels, selects)
		}
		// The program of the page reads what the pod has, and nothing else.
		program, err := os.ReadFile("example_test.go")
		require.NoError(t, err)
		for part := range strings.SplitSeq(string(program), `os.Getenv("`) {
			if name, _, ok := strings.Cut(part, `")`); ok && !strings.Contains(name, "\n") {
				require.Contains(t, env, name)
			}
		}
	}
}

// The rights on Leases are those that the store's own tests find to be enough, and needed.
func TestTheRightsAreThoseOfTheStore(t *testing.T) {
	text, err := os.ReadFile("../../backends/kubernetes/rbac.yaml")
	require.NoError(t, err)
	_, text, _ = bytes.Cut(text, []byte("\napiVersion"))
	store := objects(t, "apiVersion"+string(text))["Role"]["rules"].([]any)
	require.Subset(t, helmed(t, "image: app", "default")["Role"]["rules"], store)
	require.NotContains(t, helmed(t, overlaid, "default")["Role"]["rules"], store[0], "with a store elsewhere")
}

// What a chart is given wrongly is refused by its name.
func TestTheChartRefusesBadValues(t *testing.T) {
	for values, names := range map[string]string{
		"{}":                                         "/image",
		"{image: app, replicas: 0}":                  "/replicas",
		"{image: app, replica: 3}":                   "'replica'",
		"{image: app, version: 1.4}":                 "/version",
		"{image: app, store: {url: x}}":              "'url'",
		"{image: app, store: {key: ''}}":             "/store/key",
		"{image: app, podDeletionCost: 1}":           "/podDeletionCost",
		"{image: app, maxUnavailable: 0}":            "/maxUnavailable",
		"{image: app, stopWithinSeconds: 0}":         "/stopWithinSeconds",
		"{image: app, stopWithinSeconds: 86401}":     "/stopWithinSeconds",
		"{image: app, ports: {http: 0}}":             "/ports/http",
		"{image: app, ports: {http: 80, https: 81}}": "'https'",
		"{image: app, spreadOver: zone}":             "/spreadOver",
		"{image: app, resources: 1}":                 "/resources",
		"{image: app, httpFrom: [monitoring]}":       "/httpFrom/0",
		"{image: app, ingress: {}}":                  "/ingress",
		"{image: app, env: [{value: a}]}":            "/env/0",
	} {
		_, err := helm(values, "default")
		require.ErrorContains(t, err, names, values)
	}
}

// server is an API with the namespace bank, which lets in pods of the level restricted alone.
func server(t *testing.T) (dynamic.Interface, *kubetest.Server) {
	t.Helper()
	kubetest.Skip(t)
	if !tier.Nightly() {
		fmt.Fprintf(os.Stderr, "deploy/kubernetes: skipped but in the nightly tier (HOLDFAST_NIGHTLY=1): %s\n", t.Name())
	}
	tier.NightlyOnly(t, "TestTheBaseAndTheChartSayTheSame")
	s := kubetest.Start(t).Servers()[0]
	require.NoError(t, s.Do(t.Context(), "POST", "/api/v1/namespaces", object{"metadata": object{
		"name": "bank", "labels": object{"pod-security.kubernetes.io/enforce": "restricted"}}}, nil))
	client, err := dynamic.NewForConfig(s.Config())
	require.NoError(t, err)
	return client, s
}

// apply is `kubectl apply --server-side --validate=strict`, and nothing is kept where dry.
func apply(ctx context.Context, client dynamic.Interface, o object, dry ...string) error {
	u := unstructured.Unstructured{Object: o}
	data, err := u.MarshalJSON()
	if err != nil {
		return err
	}
	plural, _ := meta.UnsafeGuessKindToResource(u.GroupVersionKind())
	_, err = client.Resource(plural).Namespace("bank").Patch(ctx, u.GetName(), types.ApplyPatchType, data,
		metav1.PatchOptions{FieldManager: "test", FieldValidation: metav1.FieldValidationStrict, DryRun: dry})
	return err
}

// The API takes every object, validated strictly, and a pod at the level restricted.
func TestTheAPITakesEveryObject(t *testing.T) {
	client, s := server(t)
	variants := map[string]map[string]object{
		"base":    inNamespace(kustomized(t, "base"), "bank"),
		"overlay": kustomized(t, "testdata/overlay"),
		"chart":   inNamespace(helmed(t, `{image: app, podDeletionCost: false, store: {secret: s}, env: [{name: A, value: b}], ingress: [{ports: [{port: 80}]}], httpFrom: [], spreadOver: []}`, "bank"), "bank"),
	}
	for name, all := range variants {
		for kind, o := range all {
			require.NoError(t, apply(t.Context(), client, o, metav1.DryRunAll), "%s: %s", name, kind)
		}
	}
	bad := object{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": object{"name": "app"}, "spec": object{"replica": int64(3)}}
	require.ErrorContains(t, apply(t.Context(), client, bad, metav1.DryRunAll), "field not declared in schema", "it says no as well")

	// Pods are what Pod Security looks at.
	require.NoError(t, apply(t.Context(), client, variants["base"]["ServiceAccount"]))
	const pods = "/api/v1/namespaces/bank/pods"
	template := deployment(t, variants["base"]).Spec.Template
	pod := object{"metadata": object{"name": "app-1", "labels": template.Labels}, "spec": template.Spec}
	require.NoError(t, s.Do(t.Context(), "POST", pods+"?fieldValidation=Strict", pod, nil))

	// A pod gets the label of ZONE from its machine, which has to be there first.
	const zone = "topology.kubernetes.io/zone"
	require.NoError(t, s.Do(t.Context(), "POST", "/api/v1/nodes", object{"metadata": object{"name": "m", "labels": object{zone: "north"}}}, nil))
	var bound core.Pod
	eventually(t, "the label", func() bool {
		_ = s.Do(t.Context(), "POST", pods+"/app-1/binding", object{"metadata": object{"name": "app-1"}, "target": object{"kind": "Node", "name": "m"}}, nil)
		require.NoError(t, s.Do(t.Context(), "GET", pods+"/app-1", nil, &bound))
		return bound.Labels[zone] == "north"
	})

	// The base names the account without a namespace: it is the binding's own.
	for _, kind := range []string{"Role", "RoleBinding"} {
		require.NoError(t, apply(t.Context(), client, kustomized(t, "base")[kind]))
	}
	may := func(verb, group, resource string) bool {
		var review struct{ Status struct{ Allowed bool } }
		require.NoError(t, s.Do(t.Context(), "POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", object{"spec": object{
			"user":               "system:serviceaccount:bank:app",
			"resourceAttributes": object{"namespace": "bank", "verb": verb, "group": group, "resource": resource},
		}}, &review))
		return review.Status.Allowed
	}
	eventually(t, "the rights", func() bool { return may("patch", "", "pods/status") && may("delete", "coordination.k8s.io", "leases") })
	require.False(t, may("get", "", "secrets"))
}

// eventually waits until cond holds.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !cond(); time.Sleep(50 * time.Millisecond) {
		require.True(t, time.Now().Before(end), "not within a minute: %s", what)
	}
}

// The page shows the overlay, and names the settings of the chart.
func TestThePageSaysWhatThereIs(t *testing.T) {
	page, err := os.ReadFile("../../docs/deploying-on-kubernetes.md")
	require.NoError(t, err)
	overlay, err := os.ReadFile(filepath.Join("testdata", "overlay", "kustomization.yaml"))
	require.NoError(t, err)
	shown := strings.ReplaceAll(string(overlay), "../../", "holdfast/deploy/kubernetes/")
	require.Contains(t, string(page), shown)
	chart, err := loader.Load("chart")
	require.NoError(t, err)
	var missing []string
	for name := range chart.Values {
		if !strings.Contains(string(page), "`"+name) {
			missing = append(missing, name)
		}
	}
	slices.Sort(missing)
	require.Empty(t, missing)
}
