# frozen_string_literal: true

namespace :docs do
  # The variables of each page's template.
  { metrics: -> { { definitions: Memscope::Metrics::DEFINITIONS } },
    configuration: -> { { settings: Memscope::Configuration::SETTINGS } } }.each do |page, declarations|
    desc "Write docs/#{page}.md from what is declared"
    task page => :compile do
      require "erb"
      $LOAD_PATH.unshift File.expand_path("lib")
      require "memscope"
      template = ERB.new(File.read("docs/#{page}.md.erb"), trim_mode: "-")
      File.write("docs/#{page}.md", template.result_with_hash(declarations.call))
    end
  end
end
