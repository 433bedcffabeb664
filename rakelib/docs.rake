# frozen_string_literal: true

require "erb"
require_relative "../ext/memscope/field_tables"
require_relative "benchmarks"

# The pages of docs/ that are made from what is declared in lib/.
module Docs
  # The variables of each page's template.
  PAGES = {
    metrics: -> { { definitions: Memscope::Metrics::DEFINITIONS } },
    configuration: -> { { settings: Memscope::Configuration::SETTINGS, wrap: method(:wrap) } },
    fields: -> { { sections: FieldTables.sections.reject { |section| section.options.key?("private") } } }
  }.freeze

  # @return [String] content of the page
  def self.generate(page)
    require "memscope"
    require_relative "yard_fields"
    template = ERB.new(File.read("docs/#{page}.md.erb", encoding: "UTF-8"), trim_mode: "-")
    template.result_with_hash(PAGES.fetch(page).call)
  end

  # @return [String] the text in lines of at most 120 characters
  def self.wrap(text) = text.split.join(" ").gsub(/(.{1,120})(?: |\z)/, "\\1\n")
end

namespace :docs do
  Docs::PAGES.each_key do |page|
    desc "Write docs/#{page}.md from what is declared"
    task page => :compile do
      $LOAD_PATH.unshift File.expand_path("lib")
      File.write("docs/#{page}.md", Docs.generate(page))
    end
  end

  desc "Write docs/benchmarks.md from what short forms of the benchmarks print here: a minute on an idle machine"
  task benchmarks: :compile do
    File.write("docs/benchmarks.md", Benchmarks.page)
  end
end
