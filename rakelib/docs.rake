# frozen_string_literal: true

namespace :docs do
  desc "Write docs/metrics.md from what is declared"
  task metrics: :compile do
    require "erb"
    $LOAD_PATH.unshift File.expand_path("lib")
    require "memscope"
    template = ERB.new(File.read("docs/metrics.md.erb"), trim_mode: "-")
    File.write("docs/metrics.md", template.result_with_hash(definitions: Memscope::Metrics::DEFINITIONS))
  end
end
