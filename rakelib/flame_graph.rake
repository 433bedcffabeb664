# frozen_string_literal: true

require "json"

# The last versions of D3's modules that come as one file per function. Of newer ones, esbuild cannot leave out as much.
FLAME_GRAPH_PACKAGES = %w[
  esbuild@0.28.2 d3-flame-graph@5.0.0 d3-array@3.2.4 d3-color@3.1.0 d3-dispatch@3.0.1 d3-ease@3.0.1 d3-format@3.1.0
  d3-hierarchy@3.1.2 d3-interpolate@3.0.1 d3-selection@3.0.0 d3-timer@3.0.1 d3-transition@3.0.1
].freeze

# The licences of the packages in a bundle, each text once, as a comment that minifiers keep.
def bundled_licences(directory, packages)
  texts = packages.group_by do |package|
    File.readlines("#{directory}/node_modules/#{package}/LICENSE").grep_v(/\A\s*Copyright \d/).join.strip
  end
  texts = texts.map do |text, names|
    holders = names.flat_map { |name| File.readlines("#{directory}/node_modules/#{name}/LICENSE").grep(/\ACopyright/) }
    text = "Apache License 2.0, https://www.apache.org/licenses/LICENSE-2.0" if text.start_with?("Apache License")
    "#{names.join(', ')}:\n#{holders.uniq.sort.join}\n#{text}\n"
  end
  "/*! Bundled and minified from these npm packages.\n\n#{texts.join("\n")}*/\n"
end

desc "Bundle d3-flame-graph with the parts of D3 that it uses into lib/memscope/web/assets. npm installs what this " \
     "takes into TOOLS=tmp/flame_graph"
task :flame_graph do
  tools = File.expand_path(ENV.fetch("TOOLS", "tmp/flame_graph"))
  sh "npm", "install", "--silent", "--prefix", tools, *FLAME_GRAPH_PACKAGES
  # d3-flame-graph maps only from the range 0 to 1, for which d3-scale would bring 5 KB.
  File.write("#{tools}/scale.js", "export const scaleLinear = () => ({ range: ([from, to]) => (share) => " \
                                  "from + (to - from) * share });\n")
  File.write("#{tools}/entry.js", "export { select } from 'd3-selection'; export { default as flamegraph } from " \
                                  "'d3-flame-graph';\n")
  sh "#{tools}/node_modules/.bin/esbuild", "entry.js", "--bundle", "--minify", "--format=iife", "--global-name=d3",
     "--target=es2020", "--alias:d3-scale=./scale.js", "--outfile=bundle.js", "--metafile=bundle.json",
     "--log-level=warning", chdir: tools
  inputs = JSON.parse(File.read("#{tools}/bundle.json")).dig("outputs", "bundle.js", "inputs")
  used = inputs.select { |_path, input| input["bytesInOutput"].positive? }.keys
  modules = used.filter_map { |path| path[%r{\Anode_modules/([^/]+)/}, 1] }.uniq.sort
  { "js" => modules, "css" => ["d3-flame-graph"] }.each do |type, names|
    File.write("lib/memscope/web/assets/d3-flame-graph.min.#{type}",
               bundled_licences(tools, names) + File.read("#{tools}/bundle.#{type}"))
  end
end
