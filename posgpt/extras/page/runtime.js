// What esbuild bundles as the page's global `ort`.
export * from "onnxruntime-web/wasm";
