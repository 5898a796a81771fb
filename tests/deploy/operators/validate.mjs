// Resources as JSON on stdin, a list; one line for every fault of theirs. A kind without a schema here
// is a fault too.
import { readFileSync } from "node:fs";
import { Gateway, HTTPRoute } from "@kubernetes-models/gateway-api/gateway.networking.k8s.io/v1";
import { ScaledObject } from "@kubernetes-models/keda/keda.sh/v1alpha1";
import { ServiceMonitor } from "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1";

const schemas = { Gateway, HTTPRoute, ScaledObject, ServiceMonitor };
for (const resource of JSON.parse(readFileSync(0, "utf8"))) {
  const Schema = schemas[resource.kind];
  try {
    if (!Schema) throw new Error("there is no schema for it");
    const { apiVersion, kind } = new Schema();
    if (apiVersion !== resource.apiVersion) throw new Error(`is ${apiVersion}, not ${resource.apiVersion}`);
    new Schema(resource).validate();
  } catch (fault) {
    console.log(`${resource.kind}: ${fault.message}`);
  }
}
